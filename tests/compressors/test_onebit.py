"""1-bit all-reduce with servers: against float64, nothing lost between the two sides, bytes."""

import numpy as np
import pytest
import torch

from compressors.onebit import OneBit
from harness.engine.exchange.feedback import Residual
from tests.compressors.reductions import Outcome, Replica, bits, gradient, run
from tests.compressors.threads import ThreadWorkers, together


def one_bit(x: np.ndarray) -> np.ndarray:
    return np.where(x >= 0, 1.0, -1.0) * np.sqrt((x**2).mean()) if x.size else x


def slices(x: np.ndarray, size: int) -> list[np.ndarray]:
    length = 8 * -(-x.size // (8 * size))
    return [x[length * rank : length * (rank + 1)] for rank in range(size)]


@pytest.mark.parametrize("n", [1, 8, 9, 17, 1000, 4097])
@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_several_steps_are_those_of_float64(size: int, n: int) -> None:
    steps = 5

    def work(workers: ThreadWorkers) -> list[Outcome]:
        replica = Replica(workers, OneBit(), Residual())
        grads = [gradient(n, 10 * workers.rank + step) for step in range(steps)]
        return [replica.reduce(grad, 1.0, step) for step, grad in enumerate(grads)]

    outcomes = together(size, work)
    worker_errors = [np.zeros(n)] * size
    server_error = np.zeros(n)
    for step in range(steps):
        total = server_error.copy()
        for rank in range(size):
            grad = gradient(n, 10 * rank + step).double().numpy() + worker_errors[rank]
            sent = np.concatenate([one_bit(one) for one in slices(grad, size)])
            worker_errors[rank] = grad - sent
            total += sent / size
        mean = np.concatenate([one_bit(one) for one in slices(total, size)])
        server_error = total - mean
        for rank in range(size):
            reduced = outcomes[rank][step].reduced
            np.testing.assert_allclose(reduced.mean.numpy(), mean, rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(reduced.unsent, worker_errors[rank], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("n", [1, 8, 9, 100, 4097])
@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_a_slice_of_signs_to_every_server_and_one_back(size: int, n: int) -> None:
    slice_bytes = -(-n // (8 * size))
    lengths = [-(-one.size // 8) for one in slices(np.zeros(n), size)]
    grads = [gradient(n, rank) for rank in range(size)]
    for rank, outcome in enumerate(run(OneBit, grads, 0.1)):
        to_servers = sum(length + 4 for peer, length in enumerate(lengths) if peer != rank)
        assert outcome.contributed_bytes == to_servers + slice_bytes + 4


def test_workers_and_servers_together_lose_nothing() -> None:
    """Gradients less all residuals are the sum of the means, over steps on two buckets."""
    n, size, steps = 1000, 3, 10

    def work(workers: ThreadWorkers) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        compressor, feedback = OneBit(), Residual()
        replica = Replica(workers, compressor, feedback)
        of = [{"a": (n,)}, {"b": (n // 3,)}]
        got = torch.zeros(n)
        for step in range(steps):
            grad = gradient(n, 100 * workers.rank + step)
            got += replica.reduce(grad, 1.0, step, 0, of[0]).reduced.mean
            replica.reduce(grad[: n // 3], 1.0, step, 1, of[1])
        return got, feedback.by_parameter()["a"].clone(), compressor.server_errors[("a",)]

    results = together(size, work)
    given = sum(gradient(n, 100 * rank + step) for rank in range(size) for step in range(steps))
    at_workers = sum(residual for _, residual, _ in results)
    at_servers = torch.cat([error for _, _, error in results])
    expected = (given - at_workers) / size - at_servers
    torch.testing.assert_close(results[0][0], expected, rtol=0, atol=1e-3)


def test_a_new_layout_forgets_what_servers_kept_of_the_old_one() -> None:
    def work(workers: ThreadWorkers) -> dict:
        replica = Replica(workers, OneBit())
        replica.reduce(gradient(20, 0), 1.0, 0, of={"a": (10,), "b": (10,)})
        replica.reduce(gradient(10, 1), 1.0, 1, of={"b": (10,)})
        replica.reduce(gradient(30, 1), 1.0, 1, 1, of={"c": (30,)})
        return replica.compressor.server_errors

    for errors in together(2, work):
        assert list(errors) == [("b",), ("c",)]


def test_residuals_stay_bounded_when_few_elements_are_large() -> None:
    grad = torch.zeros(1000).index_fill_(0, torch.arange(3), 5.0)

    def work(workers: ThreadWorkers) -> list[Outcome]:
        replica = Replica(workers, OneBit(), Residual())
        return [replica.reduce(grad, 1.0, step) for step in range(300)]

    outcomes = together(2, work)
    for steps in zip(*outcomes, strict=True):
        assert torch.equal(bits(steps[0].reduced.mean), bits(steps[1].reduced.mean))
    received = torch.stack([outcome.reduced.mean for outcome in outcomes[0]]).mean(0)
    torch.testing.assert_close(received, grad, rtol=0, atol=0.5)
