"""Triton kernels that select by a threshold, or the k largest, in order of position.

Selection by a threshold marks each element with a bit, in one pass. Marks are counted, and marked
elements are copied to where the running sums of the counts say. For the k largest, histograms of
digits find the bits of the k-th largest magnitude, read as an integer. `compressors.kernels.gpu`
calls these kernels.
"""

import triton
import triton.language as tl

MARKED = 2048  # elements that a program marks at once
WORD = 32  # elements that are marked in one word
MARKERS = 2048  # approximate largest number of marking programs
WORDS = 512  # words of marks that a program reads at once
TAKEN = 512  # values that a program copies
RANKED = 1024  # entries that a program ranks at once
RANKERS = 512  # programs that rank
DIGITS = 4  # digits of a magnitude's 31 bits: three of 8 bits and one of 7
SAMPLED, RUN = 16384, 32  # elements of a sample, at most; elements of each run
SAMPLING_WARPS = 16
OF_A_STEP = ("k", "capacity", "every", "runs", "rank")  # vary by step: compile once
MAGNITUDE = tl.constexpr(0x7FFFFFFF)
BINS = tl.constexpr(256)  # the time of a histogram is proportional to its bins
STATE = (
    DIGITS * 256 + 2 * DIGITS + 1
)  # int32 words: histograms, prefix and rank per digit, number of entries above the bound


@triton.jit
def keys_of(v):
    """Return the bits of |v| as int32. They order as the magnitudes do, with NaN at the end."""
    return v.to(tl.int32, bitcast=True) & MAGNITUDE


@triton.jit(do_not_specialize=OF_A_STEP)
def bound_sample(
    x, added, every, runs, rank, bound, with_added: tl.constexpr, run: tl.constexpr,
    size: tl.constexpr,
):  # fmt: skip
    """Write to `bound` nearly the largest magnitude that `rank` elements of a sample reach.

    The sample is of x, or of x + added: `runs` runs of `run` adjacent elements, whose starts are
    `every` elements apart. The low bits of the bound are 0.
    """
    each = tl.arange(0, size)
    inside = each < runs * run
    at = each // run * every + each % run
    v = tl.load(x + at, mask=inside, other=0.0)
    if with_added:
        v += tl.load(added + at, mask=inside, other=0.0)
    key = tl.where(inside, keys_of(v), -1)
    low = 0
    for turn in tl.static_range(14):  # exponent and 6 bits, exact to 2 %
        trial = low | (1 << (30 - turn))
        low = tl.where(tl.sum((key >= trial).to(tl.int32), 0) >= rank, trial, low)
    tl.store(bound, tl.cast(low, tl.float32, bitcast=True))


@triton.jit
def mark(
    total, added, n, threshold, marks, counts, rounds, with_added: tl.constexpr, word: tl.constexpr,
    size: tl.constexpr,
):  # fmt: skip
    """Add `added` to `total`, and mark elements whose magnitude is not 0 and reaches `threshold`.

    A mark is one bit, the first element's in the lowest of its word of `marks`. Each program marks
    `rounds` times `size` elements, and writes the number of marks to `counts`.
    """
    block = tl.program_id(0)
    row = tl.arange(0, size // word)
    bit = tl.arange(0, word)
    bound = tl.maximum(keys_of(tl.load(threshold)), 1)
    count = tl.zeros([size // word, word], tl.int32)
    for turn in range(rounds):
        first = (block * rounds + turn) * size
        at = first + row[:, None] * word + bit[None, :]
        if first + size <= n:  # no mask, so that loads are wide for any n
            v = tl.load(total + at)
            if with_added:
                v += tl.load(added + at)
                tl.store(total + at, v)
        else:
            v = tl.load(total + at, mask=at < n, other=0.0)
            if with_added:
                v += tl.load(added + at, mask=at < n, other=0.0)
                tl.store(total + at, v, mask=at < n)
        hit = (keys_of(v) >= bound).to(tl.int32)
        count += hit
        tl.store(marks + (first // word + row), tl.sum(hit << bit[None, :], 1))
    tl.store(counts + block, tl.sum(tl.sum(count, 1), 0))


@triton.jit
def ones_of(word):
    """Return the number of set bits of each int32."""
    w = word.to(tl.uint32, bitcast=True)
    w = w - ((w >> 1) & 0x55555555)
    w = (w & 0x33333333) + ((w >> 2) & 0x33333333)
    w = (w + (w >> 4)) & 0x0F0F0F0F
    return ((w * 0x01010101) >> 24).to(tl.int32)


@triton.jit
def place_of(single):
    """Return the number of the only set bit of each int32, from the exponent of its float."""
    exponent = single.to(tl.uint32, bitcast=True).to(tl.float32).to(tl.int32, bitcast=True)
    return (exponent >> 23) - 127


@triton.jit(do_not_specialize=OF_A_STEP)
def find_marked(
    marks, counts, programs, rounds, index, capacity, passed, most: tl.constexpr,
    word: tl.constexpr, size: tl.constexpr, words: tl.constexpr,
):  # fmt: skip
    """Write the positions of marks to `index`, ascending, at most `capacity` of them.

    Write the number of all marks to `passed`. `most` is a power of two, at least `programs`.
    """
    block = tl.program_id(0)
    each = tl.arange(0, most)
    found = tl.load(counts + each, mask=each < programs, other=0)
    begin = tl.sum(tl.where(each < block, found, 0), 0)
    if block == 0:
        tl.store(passed, tl.sum(found, 0))
    own = rounds * (size // word)
    at = tl.arange(0, words)
    for first in range(0, own, words):
        number = block * own + first + at
        left = tl.load(marks + number, mask=first + at < own, other=0)
        ones = ones_of(left)
        to = begin + tl.cumsum(ones, 0) - ones
        for _ in range(tl.max(ones, 0)):  # reads no memory, since every round would wait for it
            place = number * word + place_of(left & -left)
            tl.store(index + to, place, mask=(left != 0) & (to < capacity))
            left = left & (left - 1)
            to += 1
        begin += tl.sum(ones, 0)


@triton.jit(do_not_specialize=OF_A_STEP)
def take_found(total, index, values, capacity, passed, erase: tl.constexpr, size: tl.constexpr):
    """Copy `total` at `index` to `values`, both padded with zeros; `erase` zeroes it in `total`."""
    at = tl.program_id(0) * size + tl.arange(0, size)
    some = at < tl.minimum(tl.load(passed), capacity)
    place = tl.load(index + at, mask=some, other=0)
    tl.store(values + at, tl.load(total + place, mask=some, other=0.0), mask=at < capacity)
    tl.store(index + at, place, mask=at < capacity)
    if erase:
        tl.store(total + place, tl.zeros([size], tl.float32), mask=some)


@triton.jit
def digit_of(bins, rank):
    """Return the bin of the entry with `rank`, 1 for the largest, and its rank within the bin."""
    each = tl.arange(0, BINS)
    found = tl.load(bins + each)
    beyond = tl.sum(found, 0) - tl.cumsum(found, 0)
    here = ((beyond < rank) & (beyond + found >= rank)).to(tl.int32)
    return tl.sum(here * each, 0), rank - tl.sum(here * beyond, 0)


@triton.jit
def state_of(k, states, bins, digit: tl.constexpr):
    """Return the k-th magnitude's digits before `digit`, and its rank among keys with them."""
    last: tl.constexpr = digit - 1
    prefix = 0
    rank = k
    if last > 0:
        prefix = tl.load(states + 2 * last - 2)
        rank = tl.load(states + 2 * last - 1)
    found, rank = digit_of(bins + last * BINS, rank)
    return prefix | (found << (23 - 8 * last if last < 3 else 0)), rank


@triton.jit
def lengths(n, passed, k, capacity):
    """Return how many selected entries and how many entries of x are to be ranked.

    One of the two is 0: all of x is ranked if fewer than k or more than `capacity` were selected.
    """
    found = tl.load(passed)
    selected = ((found >= k) & (found <= capacity)).to(tl.int32)
    return found * selected, n * (1 - selected)


@triton.jit
def entries_at(x, values, at, some, every):
    """Load the entries to be ranked, of `values` below `some` and of x below `every`."""
    chosen = tl.load(values + at, mask=at < some, other=0.0)
    return tl.where(at < some, chosen, tl.load(x + at, mask=at < every, other=0.0))


@triton.jit(do_not_specialize=OF_A_STEP)
def count_digits(
    x, n, values, passed, capacity, k, states, bins, digit: tl.constexpr, size: tl.constexpr
):  # fmt: skip
    """Add to a histogram the digit number `digit` of each magnitude with the known prefix.

    `states` keeps, for each digit, the prefix of the k-th magnitude before it, and the rank among
    magnitudes that begin with it.
    """
    shift: tl.constexpr = 23 - 8 * digit if digit < 3 else 0
    width: tl.constexpr = 8 if digit < 3 else 7
    prefix = 0
    if digit > 0:
        prefix, rank = state_of(k, states, bins, digit)
        if tl.program_id(0) == 0:
            tl.store(states + 2 * digit - 2, prefix)
            tl.store(states + 2 * digit - 1, rank)
    some, every = lengths(n, passed, k, capacity)
    count = some + every
    histogram = tl.zeros([BINS], tl.int32)
    for first in range(tl.program_id(0) * size, count, tl.num_programs(0) * size):
        at = first + tl.arange(0, size)
        key = keys_of(entries_at(x, values, at, some, every))
        alike = at < count
        if digit > 0:
            alike = alike & ((key >> (shift + width)) == (prefix >> (shift + width)))
        histogram += tl.histogram((key >> shift) & ((1 << width) - 1), BINS, mask=alike)
    each = tl.arange(0, BINS)
    tl.atomic_add(bins + digit * BINS + each, histogram, mask=histogram > 0, sem="relaxed")


@triton.jit(do_not_specialize=OF_A_STEP)
def count_ranked(
    x, n, values, passed, capacity, k, states, bins, above, equal, size: tl.constexpr
):  # fmt: skip
    """Count each program's entries above the k-th largest magnitude, and those equal to it."""
    block = tl.program_id(0)
    kth, ties = state_of(k, states, bins, 4)
    if block == 0:
        tl.store(states + 6, kth)
        tl.store(states + 7, ties)
    some, every = lengths(n, passed, k, capacity)
    count = some + every
    own = (count + tl.num_programs(0) * size - 1) // (tl.num_programs(0) * size) * size
    more = tl.zeros([size], tl.int32)
    same = tl.zeros([size], tl.int32)
    for first in range(block * own, tl.minimum((block + 1) * own, count), size):
        at = first + tl.arange(0, size)
        key = tl.where(at < count, keys_of(entries_at(x, values, at, some, every)), -1)
        more += (key > kth).to(tl.int32)
        same += (key == kth).to(tl.int32)
    tl.store(above + block, tl.sum(more, 0))
    tl.store(equal + block, tl.sum(same, 0))


@triton.jit(do_not_specialize=OF_A_STEP)
def take_ranked(
    x, n, index, values, passed, capacity, k, states, above, equal, best, kept,
    erase: tl.constexpr, programs: tl.constexpr, size: tl.constexpr,
):  # fmt: skip
    """Write the k largest entries to `best`, positions, and `kept`, values, in order of position.

    Of equal magnitudes the first count. With `erase`, set the entries to zero in x.
    """
    block = tl.program_id(0)
    kth = tl.load(states + 6)
    ties = tl.load(states + 7)
    each = tl.arange(0, programs)
    before = tl.sum(tl.where(each < block, tl.load(equal + each), 0), 0)
    to_first = tl.sum(tl.where(each < block, tl.load(above + each), 0), 0)
    to_first += tl.minimum(before, ties)
    some, every = lengths(n, passed, k, capacity)
    count = some + every
    own = (count + programs * size - 1) // (programs * size) * size
    for first in range(block * own, tl.minimum((block + 1) * own, count), size):
        at = first + tl.arange(0, size)
        v = entries_at(x, values, at, some, every)
        key = tl.where(at < count, keys_of(v), -1)
        same = (key == kth).to(tl.int32)
        turn = before + tl.cumsum(same, 0) - same
        keep = ((key > kth) | ((same != 0) & (turn < ties))).to(tl.int32)
        to = to_first + tl.cumsum(keep, 0) - keep
        place = tl.where(at < some, tl.load(index + at, mask=at < some, other=0), at)
        tl.store(best + to, place, mask=keep != 0)
        tl.store(kept + to, v, mask=keep != 0)
        if erase:
            tl.store(x + place, tl.zeros([size], tl.float32), mask=keep != 0)
        before += tl.sum(same, 0)
        to_first += tl.sum(keep, 0)
