"""Small integers packed in the bits they need: n codes of `width` bits in ceil(width n / 8) bytes.

Codes are packed in groups of 64, and the rest likewise: first all lowest bits, then all second
bits, and so on. A byte's first bit is its lowest. Codes of width 8 stay as they are.
"""

import numpy as np
import torch
from torch import Tensor

from compressors import kernels
from compressors.kernels import gpu

BYTE, BLOCK = 8, 64  # bits; codes whose bits lie together
NOTHING = np.empty(0, np.float32)


def packed_bytes(n: int, width: int) -> int:
    return -(-width * n // BYTE)


def pack(codes: Tensor, width: int) -> Tensor:
    """Pack codes below 2**width, uint8 [n], into uint8 [packed_bytes(n, width)]."""
    if width == BYTE:
        return codes
    whole = codes.numel() // BLOCK * BLOCK
    parts = [codes[:whole].view(-1, 1, BLOCK), codes[whole:].view(1, 1, -1)]
    shifts = torch.arange(width, dtype=torch.uint8, device=codes.device)[:, None]
    flat = torch.cat([(part >> shifts & 1).flatten() for part in parts])
    if flat.is_meta:  # a replay: nothing but the size is known
        return flat.new_empty(packed_bytes(codes.numel(), width))
    if flat.is_cuda:
        return gpu.pack_bits(flat)
    return torch.from_numpy(np.packbits(flat.numpy(), bitorder="little"))


def unpack(packed: Tensor, width: int, n: int) -> Tensor:
    """Return the codes, uint8 [n], that `pack` packed."""
    if width == BYTE:
        return packed
    if packed.is_meta:
        flat = packed.new_empty(width * n)
    elif packed.is_cuda:
        flat = gpu.unpack_bits(packed)[: width * n]
    else:
        bits = np.unpackbits(packed.numpy(), count=width * n, bitorder="little")
        flat = torch.from_numpy(bits)
    whole = n // BLOCK * BLOCK
    parts = [flat[: width * whole].view(-1, width, BLOCK), flat[width * whole :].view(1, width, -1)]
    shifts = torch.arange(width, dtype=torch.uint8, device=packed.device)[:, None]
    return torch.cat([(part << shifts).sum(1, dtype=torch.uint8).flatten() for part in parts])


def pack_signs(x: Tensor) -> Tensor:
    """Return one bit for every element of `x`, [n]: 1 if it is >= 0."""
    if x.is_cuda:
        return gpu.pack_signs(x)
    return pack((x >= 0).view(torch.uint8), 1)


def add_pack_signs_(
    total: Tensor, added: Tensor | None, packed: Tensor, squared: bool = False
) -> Tensor:
    """Add `added` to `total`, [n] both, and write the sum's signs to `packed`, uint8.

    `packed` has packed_bytes(n, 1) bytes or more. Returns the mean magnitude or mean square,
    float64 [], or 0 for no elements. The sum is float64: squares do not overflow there, and float32
    loses digits over millions of elements.
    """
    n, nbytes = total.numel(), packed_bytes(total.numel(), 1)
    kernels.require_room("packed", packed, nbytes)
    native = kernels.of(total, added)
    if native is not None:
        other = NOTHING if added is None else added.numpy()
        sum_ = native.signs.add_pack(total.numpy(), other, squared, packed.numpy())
        return torch.tensor(sum_ / max(1, n), dtype=torch.float64)
    if gpu.takes(total):
        packed[nbytes:] = 0
        return gpu.add_pack_signs_(total, added, packed, squared) / n
    if added is not None:
        total.add_(added)
    packed[:nbytes] = pack_signs(total)
    packed[nbytes:] = 0
    wide = total.double()
    return (wide.square() if squared else wide.abs()).sum() / max(1, n)


def add_signs_(total: Tensor, packed: Tensor, scale: Tensor) -> None:
    """Add `scale` times the +-1 of `packed` to `total`, [n]; not finite if `scale`, [], is not."""
    native = kernels.of(total)
    enough = packed.is_contiguous() and packed.numel() >= packed_bytes(total.numel(), 1)
    if native is not None and enough:
        native.signs.add(total.numpy(), packed.numpy(), scale.item())
        return
    if total.is_cuda:
        gpu.add_signs_(total, packed, scale)
        return
    positive = unpack(packed, 1, total.numel()).bool()
    total.add_(torch.where(positive, scale, -scale))


def add_all_signs_(
    total: Tensor, payloads: list[Tensor], scales: list[Tensor], onto: bool = False
) -> None:
    """Sum `add_signs_` over workers in the order of ranks, from 0 or, with `onto`, from `total`."""
    if (native := kernels.of(total)) is not None:
        where = kernels.addresses(payloads, packed_bytes(total.numel(), 1))
        each = np.array([scale.item() for scale in scales], np.float32)
        native.signs.add_all(total.numpy(), where, each, onto)
        return
    if gpu.takes(total):
        gpu.sum_signs_(total, payloads, torch.stack(scales).view(-1), onto)
        return
    if not onto:
        total.zero_()
    for packed, scale in zip(payloads, scales, strict=True):
        add_signs_(total, packed, scale)


def vote_(result: Tensor, payloads: list[Tensor], scale: float) -> None:
    """Set [n] elements to `scale` if at least half of the workers' signs are +, else to -scale."""
    if (native := kernels.of(result)) is not None:
        where = kernels.addresses(payloads, packed_bytes(result.numel(), 1))
        native.signs.vote(where, scale, result.numpy())
        return
    if gpu.takes(result):
        ones = torch.ones(len(payloads), device=result.device)
        gpu.sum_signs_(result, payloads, ones, onto=False)
        positive = result >= 0
        result.fill_(-scale).masked_fill_(positive, scale)
        return
    votes = torch.zeros(result.numel(), dtype=torch.int32, device=result.device)
    for packed in payloads:
        votes += unpack(packed, 1, result.numel())
    result.fill_(-scale).masked_fill_(2 * votes >= len(payloads), scale)
