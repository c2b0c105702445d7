"""The cost formulas, each with its source: bytes that a method sends, seconds that it computes.

What collectives take is `harness.simulate.costs`, by `fabric`; what overlaps what is `timeline`.
Sizes are of what one worker contributes.
"""

from collections.abc import Iterable

from harness.fidelity.layers import Tensor
from harness.fidelity.testbed import Device

FLOAT_BYTES, HALF_BYTES, INT64_BYTES, BYTE_BITS = 4, 2, 8, 8

# Passes over a matrix and products with its factors, of one step with error feedback.
# Power-SGD (Vogels et al., 2019, Algorithm 1): add the error, M Q, M^T P, P Q^T and what it left.
# ACP-SGD (Zhang et al., 2023, Algorithm 2): add the error, M Q, what it left; P Q^T at the end.
POWER_PASSES, POWER_PRODUCTS = 9, 3
ACP_PASSES, ACP_PRODUCTS = 6, 2
DECODE_PASSES, DECODE_PRODUCTS = 1, 1


def elements(tensors: Iterable[Tensor]) -> int:
    return sum(tensor.elements for tensor in tensors)


def dense_bytes(tensors: Iterable[Tensor]) -> float:
    """S-SGD and DDP: every element, float32."""
    return FLOAT_BYTES * elements(tensors)


def half_bytes(tensors: Iterable[Tensor]) -> float:
    """FP16, as torch's fp16_compress_hook."""
    return HALF_BYTES * elements(tensors)


def sparse_bytes(tensors: Iterable[Tensor], density: float) -> float:
    """Values and the int64 positions of `torch.topk`."""
    return density * elements(tensors) * (FLOAT_BYTES + INT64_BYTES)


def sign_bytes(tensors: Iterable[Tensor], packed: bool) -> float:
    """A sign an element, in a bit or, as COVAP's code sends it, in a byte; and one scale."""
    return elements(tensors) / (BYTE_BITS if packed else 1) + FLOAT_BYTES


def rank_of(tensor: Tensor, rank: int) -> int:
    """`rank`, or what the shape allows of it."""
    assert tensor.matrix is not None
    return min(rank, *tensor.matrix)


def factor_elements(tensor: Tensor, rank: int, side: int) -> int:
    """Of P, r n (side 0), or of Q, r m (side 1), of a matrix; a vector goes whole with either."""
    if tensor.matrix is None:
        return tensor.elements
    return rank_of(tensor, rank) * tensor.matrix[side]


def factor_bytes(tensors: Iterable[Tensor], rank: int, side: int) -> float:
    """Of all P or all Q, without vectors."""
    found = (factor_elements(tensor, rank, side) for tensor in tensors if tensor.matrix)
    return FLOAT_BYTES * sum(found)


def vector_bytes(tensors: Iterable[Tensor]) -> float:
    return FLOAT_BYTES * elements(tensor for tensor in tensors if not tensor.matrix)


def qr_s(tensor: Tensor, rank: int, side: int, device: Device) -> float:
    """Householder QR of a factor [n, r]: r columns in a row, 4 n r^2 operations with Q formed.

    Golub and Van Loan, Matrix Computations, section 5.2.
    """
    assert tensor.matrix is not None
    columns, rows = rank_of(tensor, rank), tensor.matrix[side]
    return columns * device.qr_column_s + 4 * rows * columns**2 / device.flops


def products_s(tensor: Tensor, rank: int, passes: int, products: int, device: Device) -> float:
    """Roofline without overlap: `passes` over the matrix in memory, `products` of 2 n m r."""
    moved = passes * FLOAT_BYTES * tensor.elements / device.memory_bytes_per_s
    return moved + products * 2 * tensor.elements * rank_of(tensor, rank) / device.flops


def power_s(tensors: Iterable[Tensor], rank: int, device: Device) -> float:
    """Power-SGD on the device, also decoding.

    Launching from the host is not hidden: the device waits, after backward or in a hook that does.
    """
    return sum(
        device.launch_s
        + qr_s(tensor, rank, 0, device)
        + products_s(tensor, rank, POWER_PASSES, POWER_PRODUCTS, device)
        for tensor in tensors
        if tensor.matrix
    )


def acp_s(tensors: Iterable[Tensor], rank: int, side: int, device: Device) -> float:
    """ACP-SGD in backward's hooks, which wait for nothing: the host launches ahead of the device.

    `side` is the factor that is computed; the other one is made orthonormal.
    """
    return sum(
        qr_s(tensor, rank, 1 - side, device)
        + products_s(tensor, rank, ACP_PASSES, ACP_PRODUCTS, device)
        for tensor in tensors
        if tensor.matrix
    )


def decode_s(tensors: Iterable[Tensor], rank: int, device: Device) -> float:
    """P Q^T after the last all-reduce of ACP-SGD."""
    return sum(
        products_s(tensor, rank, DECODE_PASSES, DECODE_PRODUCTS, device)
        for tensor in tensors
        if tensor.matrix
    )
