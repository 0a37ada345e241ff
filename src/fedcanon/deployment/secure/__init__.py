"""Secure sums: the server of a deployment learns the sum of the clients' updates and no single one.

The protocol is the double masking of Bonawitz et al. (2017) with their check of consistency, in
five questions to each client:

    keys     it makes new keys for this sum and signs them with its identity
    shares   it checks the keys of all others and deals shares of its two secrets among them
    train    it computes its update in fixed point, and sends it under its masks
    confirm  it is told who has sent an update, and signs all that it was told of the others
    unmask   it is shown these signatures, and reveals one share of one secret of each peer

Masks between pairs of clients cancel in the sum. If a client drops out before it has sent its
update, the others reveal the key of its pair masks; of those that have sent one, they reveal the
seed of the self mask. Of n clients, t = ⌊2n/3⌋ + 1 must reveal a share to put a secret together.

What holds, whatever the server does: let n be the number of clients whose keys an honest client was
given, of which c < n/3 work with the server. Together these learn nothing of its update but one sum
over all honest clients in one set of survivors. The set has t clients or more, and no fewer than
``minimum``; at least t - c of them, more than n/3, are honest. This is why:

- Shares reach only clients that were given the same n keys: for others, a box does not open.
- Server and colluders never get both secrets of a client. These need 2t shares, but an honest peer
  reveals one of two, so that there are n + c < 4n/3 < 2t.
- All honest peers that reveal shares were told the same. Each demands t signatures of survivors
  under exactly what it was told (the keys, whose boxes it was given, who survives), and an honest
  client signs once: two different texts would again need 2t signatures, of n + c.
- So no pairing key of an honest survivor is ever put together, and the t - c or more honest clients
  that have signed have masks with each other, and with every other honest survivor. They sign only
  if they can open the boxes of all survivors, who were therefore given the same keys.

With a third or more nothing is promised. The server chooses whose keys it passes on, but no fewer
than ``minimum``: who must withstand c colluders in all cases sets ``minimum`` above 3c.

A server could also tell clients different things, so that all others send zeros. Each client
therefore signs, with its keys, the scale of the fixed point and a digest of the broadcast, and
accepts only peers that have signed the same.

A sum hides a client among those that are in it. It does not hide what follows from several sums:
who may choose freely which clients are in each, and repeats a round with others at the same model,
learns their difference. The server here counts every sum that it has opened, also after a crash.
Noise (``ClientPrivacy``) protects against a server that does otherwise.
"""
