"""FedAvg with other server steps: momentum, FedAdam, FedYogi, FedExP."""

import numpy as np
import pytest
import torch

from fedcanon import FedcanonError, Federation, Problem, Quadratic, fit
from fedcanon.algorithms import Facts, FedAdam, FedAvg, FedExP, FedProx, FedYogi
from fedcanon.penalties import L1, Zero
from fedcanon.runs.named import make_algorithm
from fedcanon.runs.steps import fill_in
from tests.algorithms import reference
from tests.problems import logistics, quadratics, vector

K, ROUNDS = 4, 40
LOCAL = {"beta": 0.1, "local_steps": K}
PROBLEMS = {"quadratic": quadratics(), "logistic": logistics(clients=5, d=8, samples=30)}


@pytest.fixture(params=PROBLEMS)
def problem(request):
    return PROBLEMS[request.param]


def states(problem, algorithm, rounds=ROUNDS, **options):
    """The server's states after each round."""
    federation = Federation(problem, algorithm, options.pop("penalty", Zero()), **options)
    found = []
    for _ in range(rounds):
        federation.step()
        found.append(federation.server)
    return found


def path(problem, algorithm, rounds=ROUNDS, **options):
    return [algorithm.model(state) for state in states(problem, algorithm, rounds, **options)]


def apart(one, other):
    """The largest difference of two paths of the same length, the first of which leads away."""
    assert len(one) == len(other) > 1
    assert float((one[-1] - one[0]).norm()) > 1e-2
    return max(float((a - b).abs().max()) for a, b in zip(one, other, strict=True))


def started_adam(eta, betas, tau):
    """Makes PyTorch's Adam with v = τ² at so late a step that its corrections are exactly 1."""

    def make(z):
        adam = torch.optim.Adam([z], lr=eta, betas=betas, eps=tau)
        late, v = torch.tensor(1e6), torch.full_like(z, tau**2)
        adam.state[z] = {"step": late, "exp_avg": torch.zeros_like(z), "exp_avg_sq": v}
        return adam

    return make


def test_momentum_is_that_of_pytorch(problem):
    loop = reference.fedopt(
        problem, 0.1, K, lambda z: torch.optim.SGD([z], lr=0.7, momentum=0.8), ROUNDS
    )
    with_momentum = FedAvg(**LOCAL, server_step=0.7, momentum=0.8)
    assert apart(path(problem, with_momentum), loop) < 1e-12
    assert apart(path(problem, FedAvg(**LOCAL, server_step=0.7)), loop) > 1e-2


def test_without_momentum_the_states_are_the_model_alone(problem):
    plain = states(problem, FedAvg(**LOCAL, momentum=0.0))
    z = problem.start
    for state in plain:
        each = reference.moves(problem, z, 0.1, K)
        assert state.keys() == {"z"}
        assert float((state["z"] - z - sum(each) / len(each)).abs().max()) < 1e-13
        z = state["z"]
    assert states(problem, FedAvg(**LOCAL, momentum=0.5), 1)[0].keys() == {"z", "m"}


def test_fedprox_has_the_same_momentum(problem):
    """Without a pull it is FedAvg's; with one it changes the path, as the pull alone does."""
    free = path(problem, FedProx(**LOCAL, mu=0.0, momentum=0.6))
    assert apart(free, path(problem, FedAvg(**LOCAL, momentum=0.6))) < 1e-13
    pulled = path(problem, FedProx(**LOCAL, mu=2.0, momentum=0.6))
    assert apart(pulled, free) > 1e-3
    assert apart(pulled, path(problem, FedProx(**LOCAL, mu=2.0))) > 1e-3


def test_the_fourth_argument_of_fedprox_is_its_pull():
    assert FedProx(0.1, 10, 1.0, 0.5) == FedProx(mu=0.5)


@pytest.mark.slow
def test_momentum_ends_where_fedavg_ends():
    """At a fixed point the mean move is 0, and with it m."""
    with_momentum, plain = FedAvg(**LOCAL, momentum=0.7), FedAvg(**LOCAL)
    ends = [path(PROBLEMS["quadratic"], method, 600)[-1] for method in (with_momentum, plain)]
    assert float((ends[0] - ends[1]).norm()) < 1e-11


@pytest.mark.parametrize("betas", [(0.9, 0.99), (0.0, 0.5)])
@pytest.mark.parametrize("tau", [1e-3, 0.3])
def test_fedadam_is_pytorchs_adam_without_its_corrections(problem, betas, tau):
    adam = FedAdam(
        **LOCAL, server_step=0.05, momentum=betas[0], second_momentum=betas[1], floor=tau
    )
    loop = reference.fedopt(problem, 0.1, K, started_adam(0.05, betas, tau), ROUNDS)
    assert apart(path(problem, adam), loop) < 1e-11


def test_the_defaults_are_those_of_the_paper():
    for method in (FedAdam(), FedYogi()):
        assert (method.momentum, method.second_momentum, method.floor) == (0.9, 0.99, 1e-3)
    corrected = reference.fedopt(
        PROBLEMS["quadratic"],
        0.1,
        K,
        lambda z: torch.optim.Adam([z], lr=0.1, betas=(0.9, 0.99), eps=1e-3),
        ROUNDS,
    )
    assert apart(path(PROBLEMS["quadratic"], FedAdam(**LOCAL)), corrected) > 1e-2


@pytest.mark.parametrize("betas", [(0.9, 0.99), (0.0, 0.5)])
def test_fedyogi_is_its_loop(problem, betas):
    yogi = FedYogi(
        **LOCAL, server_step=0.05, momentum=betas[0], second_momentum=betas[1], floor=1e-2
    )
    loop = reference.fedyogi(problem, 0.1, K, 0.05, betas, 1e-2, ROUNDS)
    assert apart(path(problem, yogi), loop) < 1e-11


def test_fedyogi_and_fedadam_differ_in_the_second_moment_alone(problem):
    """After one round v is τ² plus (1 − β₂)Δ² in FedYogi, where Δ² > τ²; FedAdam also forgets."""
    adam, yogi = (states(problem, method(**LOCAL), 1)[0] for method in (FedAdam, FedYogi))
    square = (adam["m"] / 0.1).square()
    assert torch.equal(adam["m"], yogi["m"])
    assert bool((square > 1e-6).all())
    assert torch.allclose(yogi["v"], 1e-6 + 0.01 * square, rtol=1e-12)
    assert torch.allclose(adam["v"], 0.99e-6 + 0.01 * square, rtol=1e-12)


@pytest.mark.parametrize("method", [FedAdam, FedYogi])
def test_a_huge_floor_makes_fedavg_with_momentum(problem, method):
    """If √v stays τ, z moves by η_g m/(2τ), and m is 1 − β₁ times the m of FedAvg."""
    long = 1 - 2**-40  # the β₂ of a v that does not forget its start
    adaptive = method(**LOCAL, server_step=2e8, floor=1e8, second_momentum=long)
    heavy = FedAvg(**LOCAL, server_step=1 - 0.9, momentum=0.9)
    assert apart(path(problem, adaptive), path(problem, heavy)) < 1e-10


@pytest.mark.parametrize("epsilon", [1e-4, 1e-3])
def test_fedexp_is_its_loop(epsilon):
    """Steps near a solution of a problem without a common minimiser are chaotic: a few rounds."""
    for problem in PROBLEMS.values():
        method = FedExP(**LOCAL, epsilon=epsilon)
        loop, steps = reference.fedexp(problem, 0.1, K, epsilon, 12)
        found = states(problem, method, 12)
        assert apart([method.model(state) for state in found], loop) < 1e-11
        assert [method.diagnostics(state)["server_step"] for state in found] == pytest.approx(steps)
        assert max(steps) > 1.05


@pytest.mark.parametrize("clients", [1, 4])
def test_equal_clients_make_fedexp_fedavg(clients):
    """mean ‖Δ_i‖² = ‖Δ̄‖²: the step is 1, and the model is between two iterates of FedAvg."""
    one = PROBLEMS["quadratic"].clients[0]
    equal = Problem([one] * clients, PROBLEMS["quadratic"].start)
    found, plain = states(equal, FedExP(**LOCAL)), path(equal, FedAvg(**LOCAL))
    assert apart([state["z"] for state in found], plain) < 1e-13
    assert all(state["server_step"] == 1.0 for state in found)
    for before, after, state in zip(plain, plain[1:], found[1:], strict=False):
        middle = (before + after) / 2
        assert float((FedExP().model(state) - middle).abs().max()) < 1e-13


def test_clients_that_move_at_right_angles_give_half_their_number():
    """‖Δ̄‖² is the mean of ‖Δ_i‖² over N: the step is N/2 but for ε, and by symmetry exact."""
    N = 8
    own = [Quadratic(torch.eye(N, dtype=torch.float64)[i], vector(*[1.0] * N)) for i in range(N)]
    problem = Problem(own, torch.zeros(N, dtype=torch.float64))
    method = FedExP(**LOCAL, epsilon=1e-12)
    [state] = states(problem, method, 1)
    assert state["server_step"] == pytest.approx(N / 2, rel=1e-9)
    assert method.diagnostics(state) == {"server_step": state["server_step"]}


def with_a_common_minimiser(clients=10, d=40, samples=5):
    """Least squares of fewer equations than unknowns, all of which hold at one point."""
    rng = np.random.default_rng(1)
    solution, losses = rng.standard_normal(d), []
    for _ in range(clients):
        X = rng.standard_normal((samples, d))
        losses.append(Quadratic(torch.from_numpy(X.T @ X / d), torch.from_numpy(solution)))
    return Problem(losses, torch.zeros(d, dtype=torch.float64)), torch.from_numpy(solution)


@pytest.mark.slow
def test_with_a_common_minimiser_fedexp_is_exact_and_far_ahead_of_fedavg():
    problem, solution = with_a_common_minimiser()
    local = {"beta": 0.3, "local_steps": 10}
    ends = [
        float((path(problem, method, 300)[-1] - solution).norm())
        for method in (FedExP(**local, epsilon=1e-12), FedAvg(**local))
    ]
    assert ends[0] < 1e-4
    assert ends[1] > 0.1


def test_without_one_epsilon_limits_the_step(problem):
    """A large ε is FedAvg: the step is below 1 before it is raised to 1."""
    found = states(problem, FedExP(**LOCAL, epsilon=1e6))
    assert {state["server_step"] for state in found} == {1.0}
    assert apart([state["z"] for state in found], path(problem, FedAvg(**LOCAL))) < 1e-12


def test_every_record_has_the_server_step_of_fedexp():
    result = fit(Federation(PROBLEMS["quadratic"], FedExP(**LOCAL), L1(0.1)), 6)
    steps = [record.diagnostics["server_step"] for record in result.records]
    _, expected = reference.fedexp(PROBLEMS["quadratic"], 0.1, K, 1e-3, 6)
    assert steps == pytest.approx([1.0, *expected])


@pytest.mark.parametrize("name", ["fedavg", "fedadam", "fedyogi", "fedexp"])
def test_only_the_local_step_can_be_automatic(name):
    table = fill_in({"name": name, "beta": "auto", "local_steps": 5}, Facts(4.0))
    assert make_algorithm(table).beta == pytest.approx(1 / 20)
    if name != "fedexp":
        with pytest.raises(FedcanonError, match='server_step cannot be "auto": only beta can'):
            fill_in({"name": name, "server_step": "auto"}, Facts(4.0))


@pytest.mark.parametrize(
    "method", [FedAvg(**LOCAL, momentum=0.5), FedAdam(**LOCAL), FedExP(**LOCAL)]
)
def test_the_penalty_is_ignored(problem, method):
    one, other = (path(problem, method, 5, penalty=h) for h in (Zero(), L1(1.0)))
    assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))
