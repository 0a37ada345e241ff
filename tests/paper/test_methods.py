"""The names of the paper lead to the methods of the package, and what they spend is counted."""

from fedcanon.algorithms import ALGORITHMS, DecentralisedProxSkip, FedCanonII, FedMiD
from fedcanon.paper import accuracy, costs, fig1, fig2, properties, theory
from fedcanon.paper.methods import TIMED, make_method, registered, run_rounds, spent_per_round
from fedcanon.penalties import L1
from fedcanon.runs import Federation
from tests.problems import quadratics


def test_every_method_of_every_item_is_registered():
    items = [TIMED, accuracy.METHODS, fig1.METHODS, fig2.METHODS, theory.METHODS, properties.PAPER]
    counted = [formulas.method for formulas in costs.PUBLISHED + costs.OTHERS]
    for method in {*counted, *(method for methods in items for method in methods)}:
        assert registered(method) in ALGORITHMS
    assert properties.STEPS.keys() <= properties.PAPER.keys()
    assert costs.STEPS.keys() <= set(counted)


def test_a_method_is_made_with_its_steps():
    assert make_method("FedMiD", beta=0.2, local_steps=3) == FedMiD(beta=0.2, local_steps=3)
    assert make_method("FedCanon II") == FedCanonII()
    made = make_method("Guo et al.", topology="complete")
    assert made == DecentralisedProxSkip(topology="complete")


def test_rounds_go_on_and_the_first_is_not_counted():
    def federation():
        return Federation(quadratics(clients=5, d=10), make_method("Fast-FedDA"), L1(0.1))

    once, twice = federation(), federation()
    run_rounds(twice, 2)
    assert run_rounds(once, 5).equal(run_rounds(twice, 3))
    # By the method's docstring: 5 clients, K = 10, prox NK + 1, and 4d floats of each client.
    assert spent_per_round(federation(), 3) == (5 * 10 + 1, 2 * 5 * 10, 2 * 5 * 10)
