"""Selection, rounding and sign packing on a GPU, in kernels that the host never waits for.

Selected entries go into buffers of a fixed capacity. So neither their number nor their positions
reach the host before they are sent. The code is Triton where it can compile (it needs a C compiler
at run time), else torch, with equal results. Functions without a torch version need `takes`.
"""

import functools
import shutil
from types import ModuleType
from typing import NamedTuple

import torch
from torch import Tensor

BYTE, WORD = 8, 64  # bits; codes that are packed together, as in compressors.packing
TOGETHER = 8  # workers whose contributions are added in one pass
MAGNITUDE = 0x7FFFFFFF  # mask of a float32's bits without sign
INDEX_END = (1 << 31) - (1 << 12)  # positions are int32, also past the end


class Selected(NamedTuple):
    """Entries of a vector, sorted by position and padded with zeros to a fixed capacity."""

    where: Tensor  # int32 [capacity]
    values: Tensor  # float32 [capacity]
    passed: Tensor  # integer []: entries that reach the threshold, may exceed capacity


@functools.cache
def loops() -> ModuleType | None:
    """Return the module of Triton kernels, or None without Triton or a C compiler."""
    try:
        from compressors.kernels import gpu_loops
    except ImportError:
        return None
    compiles = any(map(shutil.which, ("cc", "gcc", "clang")))
    return gpu_loops if gpu_loops.INTERPRETS or compiles else None


def select_(
    total: Tensor, threshold: Tensor, capacity: int, added: Tensor | None = None, erase: bool = True
) -> Selected:
    """Take the entries of `total`, [n], whose magnitude is at least `threshold`, float32 [].

    Add `added`, [n], to `total` first, if given. NaN is taken, and zero is not. At most `capacity`
    entries are taken, those of lowest positions. With `erase`, they become zero in `total`. Raise
    ValueError if n is about 2^31 or more.
    """
    n = total.numel()
    if n >= INDEX_END:
        raise ValueError(
            f"total must have fewer than {INDEX_END} elements, got {n}; use more buckets"
        )
    if loops() is None:
        return _select_in_torch(total, threshold, capacity, added, erase)
    index = torch.empty(capacity, dtype=torch.int32, device=total.device)
    values = torch.empty(capacity, dtype=total.dtype, device=total.device)
    passed = torch.empty((), dtype=torch.int32, device=total.device)
    _select(total, threshold, index, values, passed, added, erase)
    return Selected(index, values, passed)


def _select(
    total: Tensor,
    threshold: Tensor,
    index: Tensor,
    values: Tensor,
    passed: Tensor,
    added: Tensor | None,
    erase: bool,
) -> None:
    kernels, n = _selection(), total.numel()
    size, word, words = kernels.MARKED, kernels.WORD, kernels.WORDS
    rounds = max(1, -(-n // (size * kernels.MARKERS)))
    programs = -(-n // (size * rounds))
    marks = torch.empty(programs * rounds * size // word, dtype=torch.int32, device=total.device)
    counts = torch.empty(programs, dtype=torch.int32, device=total.device)
    addend = total if added is None else added
    kernels.mark[(programs,)](
        total, addend, n, threshold, marks, counts, rounds, with_added=added is not None,
        word=word, size=size,
    )  # fmt: skip
    kernels.find_marked[(programs,)](
        marks, counts, programs, rounds, index, index.numel(), passed,
        most=1 << (programs - 1).bit_length(), word=word, size=size, words=words,
    )  # fmt: skip
    kernels.take_found[(-(-index.numel() // kernels.TAKEN),)](
        total, index, values, index.numel(), passed, erase=erase, size=kernels.TAKEN
    )


def _select_in_torch(
    total: Tensor, threshold: Tensor, capacity: int, added: Tensor | None, erase: bool
) -> Selected:
    if added is not None:
        total.add_(added)
    bound = threshold.view(torch.int32).bitwise_and(MAGNITUDE).clamp_(min=1)
    passed = total.view(torch.int32).bitwise_and(MAGNITUDE) >= bound
    where = torch.nonzero_static(passed, size=capacity, fill_value=-1).flatten()
    filled = where >= 0
    where.clamp_(min=0)
    values = torch.where(filled, total.index_select(0, where), 0)
    if erase:
        # Padding has position 0: write that element back unchanged, unless it was taken.
        first_stays = torch.where(passed[0] & filled[0], 0, total[0])
        total.index_put_((where,), torch.where(filled, 0, first_stays))
    return Selected(where.int(), values, passed.sum())


class Sample(NamedTuple):
    """Plan of a sample that bounds the k-th largest magnitude: evenly spaced runs of elements."""

    runs: int
    every: int  # elements from one run to the next, an odd number of runs
    rank: int  # of the bound within the sample; 0 ranks all elements without a sample
    room: int  # capacity for entries that reach the bound


def take_largest_(
    total: Tensor, k: int, sample: Sample, added: Tensor | None = None, erase: bool = True
) -> tuple[Tensor, Tensor]:
    """Return positions, int32 [k], and values, [k], of the k largest magnitudes of `total`, [n].

    They are sorted by position; of equal magnitudes the first count. `added`, [n], is added to
    `total` first, if given. With `erase`, the entries become zero in `total`. Only entries that
    reach the bound of `sample` are ranked, if they are at least k and fit into its room. Otherwise
    all are. The host never learns which.
    """
    kernels, n, device = _selection(), total.numel(), total.device
    state = torch.zeros(kernels.STATE, dtype=torch.int32, device=device)
    tail = 2 * kernels.DIGITS, 1
    bins, found, passed = state.split([kernels.STATE - sum(tail), *tail])
    index, best = (torch.empty(m, dtype=torch.int32, device=device) for m in (sample.room, k))
    values, kept = (torch.empty(m, device=device) for m in (sample.room, k))
    if sample.rank:
        bound = torch.empty((), device=device)
        kernels.bound_sample[(1,)](
            total, total if added is None else added, sample.every, sample.runs, sample.rank,
            bound, with_added=added is not None, run=kernels.RUN, size=kernels.SAMPLED,
            num_warps=kernels.SAMPLING_WARPS,
        )  # fmt: skip
        _select(total, bound, index, values, passed, added, erase=False)
    elif added is not None:
        total.add_(added)
    size = kernels.RANKED
    programs = min(kernels.RANKERS, 1 << (-(-n // size) - 1).bit_length())
    above, equal = torch.empty(2, programs, dtype=torch.int32, device=device)
    given = total, n, values, passed, sample.room, k, found
    for digit in range(kernels.DIGITS):
        kernels.count_digits[(programs,)](*given, bins, digit=digit, size=size)
    kernels.count_ranked[(programs,)](*given, bins, above, equal, size=size)
    kernels.take_ranked[(programs,)](
        total, n, index, *given[2:], above, equal, best, kept, erase=erase, programs=programs,
        size=size,
    )  # fmt: skip
    return best, kept


class Blocks(NamedTuple):
    """Adjacent blocks of a vector: of one length, except for the last, or each with its own end."""

    length: int  # 0 if lengths differ
    ends: Tensor  # int64 [blocks], on the device; empty if lengths are equal
    number: int

    @classmethod
    def of(cls, ends: Tensor, device: torch.device) -> "Blocks":
        """Return the blocks that end at `ends`, int64 [blocks], ascending, on the CPU.

        They are for tensors on `device`. Ends are copied there only if lengths differ.
        """
        length, last, count = int(ends[0]), int(ends[-1]), ends.numel()
        equal = torch.arange(length, length * count + 1, max(1, length)).clamp_(max=last)
        if equal.numel() == count and torch.equal(equal, ends):
            return cls(length, ends.new_empty(0, device=device), count)
        return cls(0, ends.to(device), count)

    @property
    def power(self) -> int:
        """The length if it is a power of two of at most 2048, so that it fits a program; else 0."""
        fits = 0 < self.length <= 2048 and not self.length & (self.length - 1)
        return self.length if fits else 0

    @property
    def alike(self) -> int:
        """Rows of 8 elements per block; 0 if it has no whole rows, 2^28 for a single block."""
        if self.number == 1:
            return 1 << 28
        return 0 if self.length % BYTE else self.length // BYTE

    @property
    def rounds(self) -> int:
        """Steps of the binary search for an element's block; 0 if its number can be computed."""
        return 0 if self.length else max(1, (self.number - 1).bit_length())


def takes(x: Tensor) -> bool:
    """Return True if Triton works, and `x` is on a GPU and has 1 to about 2^31 elements."""
    return x.is_cuda and 0 < x.numel() < INDEX_END and loops() is not None


def _kernels() -> ModuleType:
    kernels = loops()
    assert kernels is not None  # callers check `takes` first
    return kernels


def _selection() -> ModuleType:
    from compressors.kernels import gpu_selection

    return gpu_selection


def add_round_(
    total: Tensor,
    added: Tensor | None,
    blocks: Blocks,
    steps: Tensor,
    key: tuple[int, int],
    width: int,
    keep: bool,
    norm: str | None,
) -> tuple[Tensor, Tensor]:
    """Add `added` to `total`, [n], and quantise by stochastic rounding (compressors.stochastic).

    Return packed codes, uint8, of whole groups of 64 elements, and codes of the last n % 64, uint8.
    With `width` 8 all codes are in the first tensor. If `norm` is "max" or "l2", write each block's
    norm over the levels to `steps`; this needs `blocks.power`. Otherwise `steps` are given. `key`
    is two words of 32 bits. With `keep`, `total` becomes the sum minus the decoded values.
    """
    kernels, n = _kernels(), total.numel()
    words = (word - (1 << 32) if word >> 31 else word for word in key)  # int32: one compilation
    whole = n if width == BYTE else n // WORD * WORD
    packed = torch.empty(width * whole // BYTE, dtype=torch.uint8, device=total.device)
    rest = torch.empty(n - whole, dtype=torch.uint8, device=total.device)
    size = kernels.BYTES
    kernels.add_round[(-(-n // (BYTE * size)),)](
        total, total if added is None else added, n, whole, steps, blocks.length, blocks.ends,
        blocks.number, *words, packed, rest, levels=(1 << width - 1) - 1, block=blocks.power,
        rounds=blocks.rounds, norm={None: 0, "max": 1, "l2": 2}[norm], width=width,
        with_added=added is not None, keep=keep, size=size, **kernels.EXACT,
    )  # fmt: skip
    return packed, rest


def sum_rounded_(
    total: Tensor, blocks: Blocks, width: int, codes: list[Tensor], steps: list[Tensor]
) -> None:
    """Write the sum of decoded `codes` and `steps`, one per worker by rank, to `total`, [n]."""
    kernels, n = _kernels(), total.numel()
    size, unit = kernels.BYTES, BYTE if width == BYTE else WORD
    whole = n // unit * unit
    for first in range(0, len(codes), TOGETHER):
        some = slice(first, first + TOGETHER)
        given = blocks.length, blocks.ends, blocks.number, tuple(codes[some]), tuple(steps[some])
        how = dict(levels=(1 << width - 1) - 1, onto=first > 0, rounds=blocks.rounds, width=width)
        grid = (-(-whole // (BYTE * size)),)
        if whole and width == 2 and blocks.alike:
            kernels.sum_two_bits[grid](
                total, whole // BYTE, *given[3:], onto=first > 0, alike=blocks.alike, size=size,
                **kernels.EXACT,
            )  # fmt: skip
        elif whole:
            kernels.sum_codes[grid](
                total, whole // BYTE, *given, alike=blocks.alike, size=size, **how, **kernels.EXACT
            )
        if whole < n:
            kernels.sum_rest[(1,)](total, n, whole, *given, size=WORD, **how, **kernels.EXACT)


def add_pack_signs_(total: Tensor, added: Tensor | None, packed: Tensor, squared: bool) -> Tensor:
    """Add `added` to `total`, [n], pack its signs; return sum of magnitudes or squares, float64."""
    kernels, n = _kernels(), total.numel()
    programs = -(-n // (BYTE * kernels.BYTES))
    sums = torch.empty(programs, dtype=torch.float64, device=total.device)
    addend = total if added is None else added
    kernels.add_pack_measure[(programs,)](
        total, addend, n, packed, sums, with_added=added is not None, squared=squared,
        size=kernels.BYTES,
    )  # fmt: skip
    return sums.sum()


def sum_signs_(total: Tensor, packed: list[Tensor], scales: Tensor, onto: bool) -> None:
    """Sum workers' signs times `scales`, by rank, to `total`, [n]; overwrite it unless `onto`."""
    kernels, n = _kernels(), total.numel()
    size = kernels.BYTES
    for first in range(0, len(packed), TOGETHER):
        kernels.sum_signs[(-(-n // (BYTE * size)),)](
            total, n, tuple(packed[first : first + TOGETHER]), scales[first:],
            onto=onto or first > 0, size=size,
        )  # fmt: skip


def add_cast_(
    total: Tensor, added: Tensor | None, divisor: int, wire: Tensor, keep: bool
) -> Tensor:
    """Write (total += added) / divisor to `wire`, [n], in the type of `wire`.

    Return the largest magnitude of the sum, float32 []. With `keep`, `total` becomes the sum minus
    `divisor` times `wire`. Otherwise it becomes the sum.
    """
    kernels, n = _kernels(), total.numel()
    size = kernels.BLOCK
    programs = -(-n // size)
    largest = torch.empty(programs, dtype=torch.int32, device=total.device)
    addend = total if added is None else added
    kernels.add_cast[(programs,)](
        total, addend, n, 1 / divisor, float(divisor), wire, largest,
        with_added=added is not None, keep=keep, size=size, **kernels.EXACT,
    )  # fmt: skip
    return largest.max().view(torch.float32)


def add_measure_(total: Tensor, added: Tensor | None) -> tuple[Tensor, Tensor]:
    """Add `added` to `total`, [n]. Return max |x|, float32 [], and sum of squares, float64 []."""
    kernels, n = _kernels(), total.numel()
    size = kernels.BLOCK
    programs = -(-n // size)
    largest = torch.empty(programs, dtype=torch.int32, device=total.device)
    squares = torch.empty(programs, dtype=torch.float64, device=total.device)
    addend = total if added is None else added
    kernels.add_measure[(programs,)](
        total, addend, n, largest, squares, with_added=added is not None, size=size
    )
    return largest.max().view(torch.float32), squares.sum()


def pack_signs(x: Tensor) -> Tensor:
    """Return a bit per element of `x`, [n], 1 if it is >= 0, as uint8 [ceil(n / 8)]."""
    if (kernels := loops()) is None:
        return pack_bits((x >= 0).view(torch.uint8))
    packed = torch.empty(-(-x.numel() // BYTE), dtype=torch.uint8, device=x.device)
    size = kernels.BYTES
    kernels.pack_signs[(-(-packed.numel() // size),)](x, x.numel(), packed, size=size)
    return packed


def add_signs_(total: Tensor, packed: Tensor, scale: Tensor) -> None:
    """Add `scale`, float32 [], to `total`, [n], where the bit of `packed` is 1; else -scale."""
    n = total.numel()
    if (kernels := loops()) is None:
        total.add_(torch.where(unpack_bits(packed)[:n].bool(), scale, -scale))
        return
    size = kernels.BLOCK
    kernels.add_signs[(-(-n // size),)](total, packed, scale, n, size=size)


def pack_bits(bits: Tensor) -> Tensor:
    """Pack zeros and ones, uint8 [n], eight per byte from the lowest bit, filled with zeros."""
    padded = torch.nn.functional.pad(bits, (0, -bits.numel() % BYTE)).view(-1, BYTE)
    shifts = torch.arange(BYTE, dtype=torch.uint8, device=bits.device)
    return (padded << shifts).sum(1, dtype=torch.uint8)


def unpack_bits(packed: Tensor) -> Tensor:
    """Return the zeros and ones that `pack_bits` packed, uint8 [8 x bytes]."""
    shifts = torch.arange(BYTE, dtype=torch.uint8, device=packed.device)
    return (packed[:, None] >> shifts & 1).flatten()
