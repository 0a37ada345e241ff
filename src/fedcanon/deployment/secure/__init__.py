"""Secure sums: the server of a deployment learns the sum of the clients' updates and no single one.

The protocol is the double masking of Bonawitz et al. (2017), in four questions to each client:

    keys     it makes new keys for this sum and signs them with its identity
    shares   it checks the keys of all others and deals shares of its two secrets among them
    train    it computes its update in fixed point, and sends it under its masks
    unmask   it is told who has sent an update, and reveals one share of one secret of each peer

Masks between pairs of clients cancel in the sum. If a client drops out before it has sent its
update, the others reveal the key of its pair masks; of those that have sent one, they reveal the
seed of the self mask. With both, the server could read an update. It never gets both: each peer
reveals one of them, for one set of survivors, and t = ⌊2n/3⌋ + 1 of n shares are needed. Two
secrets need 2t shares, more than n peers have, even if a third of them works with the server.

A server could also tell clients different things, so that all others send zeros. Each client
therefore signs, with its keys, the scale of the fixed point and a digest of the broadcast, and
accepts only peers that have signed the same.

A sum hides a client among those that are in it. It does not hide what follows from several sums:
who may choose freely which clients are in each, and repeats a round with others at the same model,
learns their difference. The server here counts every sum that it has opened, also after a crash.
Noise (``ClientPrivacy``) protects against a server that does otherwise.
"""
