"""Selection and sign packing on a GPU, in kernels that the host never waits for.

What is selected goes into buffers of a fixed capacity, so that neither its number nor its
positions have to reach the host before they are sent. In Triton where that can compile (it needs a
C compiler when it runs), in torch otherwise, with equal results.
"""

import functools
import shutil
from types import ModuleType
from typing import NamedTuple

import torch
from torch import Tensor

BYTE, WORD = 8, 64  # bits; codes whose bits lie together, as in compressors.packing
TOGETHER = 8  # workers whose contributions are added in one pass
MAGNITUDE = 0x7FFFFFFF  # every bit of a float32 but its sign
INDEX_END = (1 << 31) - (1 << 12)  # positions are int32, beyond the end too


class Selected(NamedTuple):
    """Entries of a vector, by ascending position; both are filled up with zeros."""

    where: Tensor  # int32 [capacity]
    values: Tensor  # float32 [capacity]
    passed: Tensor  # an integer [], how many passed the threshold; those beyond capacity were left


@functools.cache
def loops() -> ModuleType | None:
    """The Triton kernels; None where Triton is not installed or has no compiler to work with."""
    try:
        from compressors.kernels import gpu_loops
    except ImportError:
        return None
    compiles = any(map(shutil.which, ("cc", "gcc", "clang")))
    return gpu_loops if gpu_loops.INTERPRETS or compiles else None


def select_(
    total: Tensor,
    threshold: Tensor,
    capacity: int,
    added: Tensor | None = None,
    erase: bool = True,
) -> Selected:
    """Take the entries of `total`, [n], of magnitude `threshold`, float32 [], or more out of it.

    With `added`, of total += added. NaN is taken, zeros are not. At most `capacity` leave, those of
    lowest positions; they are zero in `total` afterwards, or with `erase` false only copied.
    ValueError for n of about 2^31 or more.
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
    total: Tensor,
    threshold: Tensor,
    capacity: int,
    added: Tensor | None,
    erase: bool,
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
        # Where nothing was found the first element is put back as it is, unless it was taken.
        first_stays = torch.where(passed[0] & filled[0], 0, total[0])
        total.index_put_((where,), torch.where(filled, 0, first_stays))
    return Selected(where.int(), values, passed.sum())


class Sample(NamedTuple):
    """Evenly spaced runs of adjacent elements, from the first on, that bound the k-th largest."""

    runs: int
    every: int  # elements from one run to the next, an odd number of runs
    rank: int  # in the sample, of the bound; 0: of no use, all are ranked
    room: int  # for entries that reach the bound


def take_largest_(
    total: Tensor, k: int, sample: Sample, added: Tensor | None = None, erase: bool = True
) -> tuple[Tensor, Tensor]:
    """The k largest magnitudes of `total`, or of total += added, [n]: where, int32, and values.

    By ascending position; of equal ones the first. With `erase`, they become zero. What reaches
    the bound of the sample is ranked or, where that is not k or finds no room, all; the host does
    not learn which.
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
    """Adjacent parts of a vector: of `length` elements each, the last may have less, or by ends."""

    length: int  # 0: unequal
    ends: Tensor  # int64 [blocks], on the device; of no use where lengths are equal
    number: int

    @classmethod
    def of(cls, ends: Tensor, device: torch.device) -> "Blocks":
        """Make the blocks that end at `ends`, int64 [blocks] on the CPU, ascending."""
        length, last, count = int(ends[0]), int(ends[-1]), ends.numel()
        equal = torch.arange(length, length * count + 1, max(1, length)).clamp_(max=last)
        if equal.numel() == count and torch.equal(equal, ends):
            return cls(length, ends.new_empty(0, device=device), count)
        return cls(0, ends.to(device), count)

    @property
    def power(self) -> int:
        """The length, where that is a power of two and a block fits in a program; or 0."""
        fits = 0 < self.length <= 2048 and not self.length & (self.length - 1)
        return self.length if fits else 0

    @property
    def alike(self) -> int:
        """Rows of 8 elements in a block; 0: rows are not whole. Any number, of one block."""
        if self.number == 1:
            return 1 << 28
        return 0 if self.length % BYTE else self.length // BYTE

    @property
    def rounds(self) -> int:
        """Halvings in which a block is found by its end; 0: it is computed."""
        return 0 if self.length else max(1, (self.number - 1).bit_length())


def takes(x: Tensor) -> bool:
    """Tell whether the functions below work on `x`: on a GPU, not empty, and small enough."""
    return x.is_cuda and 0 < x.numel() < INDEX_END and loops() is not None


def _kernels() -> ModuleType:
    kernels = loops()
    assert kernels is not None  # `takes` was asked
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
    """Codes of total += added, [n], by stochastic rounding; see compressors.stochastic.

    Of whole blocks of 64 packed, uint8, and codes of those left at the end, uint8 [n % 64]; with 8
    bits all are in the first. With `norm`, `steps` become blocks' norms, which needs `power`.
    `key` is two words of 32 bits; with `keep`, what codes stand for is taken from `total`.
    """
    kernels, n = _kernels(), total.numel()
    words = (word - (1 << 32) if word >> 31 else word for word in key)  # of one type: compiled once
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
    """Into `total`, [n]: the sum of what packed codes and steps of workers stand for, by rank."""
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
    """Signs of total += added, [n], into `packed`; the sum of magnitudes or squares, float64 []."""
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
    """The sum of workers' signs times `scales`, [workers], to `total`, [n], or to 0; by rank."""
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
    """(total += added) / divisor into `wire`, [n]; the largest magnitude of the sum, float32 [].

    With `keep`, `total` is left with what the cast took.
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
    """Largest magnitude, float32 [], and sum of squares, float64 [], of total += added, [n]."""
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
    """A bit for every element of `x`, [n]: whether it is >= 0; uint8 [ceil(n / 8)]."""
    if (kernels := loops()) is None:
        return pack_bits((x >= 0).view(torch.uint8))
    packed = torch.empty(-(-x.numel() // BYTE), dtype=torch.uint8, device=x.device)
    size = kernels.BYTES
    kernels.pack_signs[(-(-packed.numel() // size),)](x, x.numel(), packed, size=size)
    return packed


def add_signs_(total: Tensor, packed: Tensor, scale: Tensor) -> None:
    """Add `scale`, float32 [], times the +-1 of `pack_signs` to `total`, [n]."""
    n = total.numel()
    if (kernels := loops()) is None:
        total.add_(torch.where(unpack_bits(packed)[:n].bool(), scale, -scale))
        return
    size = kernels.BLOCK
    kernels.add_signs[(-(-n // size),)](total, packed, scale, n, size=size)


def pack_bits(bits: Tensor) -> Tensor:
    """Zeros and ones, uint8 [n], eight to a byte, the first in its lowest bit."""
    padded = torch.nn.functional.pad(bits, (0, -bits.numel() % BYTE)).view(-1, BYTE)
    shifts = torch.arange(BYTE, dtype=torch.uint8, device=bits.device)
    return (padded << shifts).sum(1, dtype=torch.uint8)


def unpack_bits(packed: Tensor) -> Tensor:
    """The zeros and ones of `pack_bits`, uint8 [8 x bytes]."""
    shifts = torch.arange(BYTE, dtype=torch.uint8, device=packed.device)
    return (packed[:, None] >> shifts & 1).flatten()
