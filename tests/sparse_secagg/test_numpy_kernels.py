"""Kernels in NumPy against the compiled ones: the same numbers, so that messages do not depend on
whether a client has numba. Equal means equal bit for bit, zeros' signs included, but for the square
sums of rows, which are summed in another order."""

import ast
import importlib
import inspect
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sparse_secagg
from sparse_secagg import ClientPolicy, RoundSpec, client_encode, kernels
from sparse_secagg.mechanisms import SimulationRandomness
from sparse_secagg.mechanisms.inversion import build_table, draw
from sparse_secagg.mechanisms.rejection import draw_by_rejection
from sparse_secagg.mechanisms.rounding import conditional_rounding
from sparse_secagg.mechanisms.sampling import discrete_gaussian
from sparse_secagg.mechanisms.tail_sums import Gaussian, Poisson
from sparse_secagg.numpy_kernels.pieces import pieces
from sparse_secagg.public_randomness import random_signs, smallest_words
from sparse_secagg.secagg.masks import MaskSum, add_modulo
from sparse_secagg.secagg.modular import check_messages, modular_sum
from sparse_secagg.secagg.wire import pack
from sparse_secagg.walsh_hadamard import fwht

ROOT = Path(sparse_secagg.__file__).parent
#: More than one piece of 2**16 entries, and an odd rest.
LONG = 2**17 + 4321
LENGTHS = [0, 1, 2, 63, 64, 65, 1000, LONG]
KEY = np.uint64(0xDEADBEEFCAFEF00D)


def compiled(name):
    return importlib.import_module(kernels.COMPILED[name])


def twin(name):
    return importlib.import_module(f"sparse_secagg.numpy_kernels.{name}")


def both(name, function, *make_arguments):
    """Call the two kernels, each on fresh arguments; return two pairs (result, arguments)."""
    results = []
    for module in (compiled(name), twin(name)):
        arguments = [make() if callable(make) else make for make in make_arguments]
        results.append((getattr(module, function)(*arguments), arguments))
    return results


def assert_same_bits(a, b):
    a, b = np.asarray(a), np.asarray(b)
    assert a.dtype == b.dtype
    assert a.shape == b.shape
    assert a.tobytes() == b.tobytes()


def assert_both_write_the_same(name, function, *make_arguments):
    """Compare every array among the arguments after the call, and what is returned."""
    (one, first), (two, second) = both(name, function, *make_arguments)
    assert one == two
    for a, b in zip(first, second):
        if isinstance(a, np.ndarray):
            assert_same_bits(a, b)


def with_both(work):
    """Return what ``work`` returns with compiled kernels and with their twins."""
    with kernels.using("numba"):
        one = work()
    with kernels.using("numpy"):
        return one, work()


def fresh(array):
    return lambda: array.copy()


# -- which kernels are used ------------------------------------------------------------------------


def test_compiled_kernels_are_used_where_numba_is(monkeypatch):
    monkeypatch.delenv("SPARSE_SECAGG_KERNELS", raising=False)
    assert kernels.kind() == "numba"
    with kernels.using("numba"):
        assert {name: getattr(kernels, name) for name in kernels.COMPILED} == {
            name: compiled(name) for name in kernels.COMPILED
        }


def test_the_variable_chooses_the_twins(monkeypatch):
    monkeypatch.setenv("SPARSE_SECAGG_KERNELS", "numpy")
    assert kernels.kind() == "numpy"
    with kernels.using("numpy"):
        for name in kernels.COMPILED:
            assert getattr(kernels, name) is twin(name)


def test_a_choice_ends_with_its_block(monkeypatch):
    monkeypatch.delenv("SPARSE_SECAGG_KERNELS", raising=False)
    with kernels.using("numpy"):
        assert kernels.wire is twin("wire")
        with kernels.using("numba"):
            assert kernels.wire is compiled("wire")
        assert kernels.wire is twin("wire")
    assert kernels.wire is compiled("wire")


@pytest.mark.parametrize("value", ["", "cython", "NUMPY"])
def test_another_choice_is_refused(monkeypatch, value):
    monkeypatch.setenv("SPARSE_SECAGG_KERNELS", value)
    with pytest.raises(ValueError, match=f"SPARSE_SECAGG_KERNELS='{value}' must be 'numba'"):
        kernels.kind()
    monkeypatch.delenv("SPARSE_SECAGG_KERNELS")
    with pytest.raises(ValueError, match="leave it unset"), kernels.using(value):
        raise AssertionError("not reached")
    assert kernels.kind() == "numba"


def test_numba_that_is_asked_for_must_be_there(monkeypatch):
    monkeypatch.setitem(sys.modules, "numba", None)
    monkeypatch.delenv("SPARSE_SECAGG_KERNELS", raising=False)
    assert kernels.kind() == "numpy"
    monkeypatch.setenv("SPARSE_SECAGG_KERNELS", "numba")
    with pytest.raises(ImportError, match="numba is not installed"):
        kernels.kind()


def test_there_are_no_other_kernels():
    with pytest.raises(AttributeError, match="no attribute 'gaussian'"):
        _ = kernels.gaussian


def test_kernels_work_without_numba_and_load_nothing_heavy():
    code = (
        "import sys; sys.modules['numba'] = sys.modules['llvmlite'] = None\n"
        "import numpy as np\n"
        "from sparse_secagg import kernels\n"
        "assert kernels.rounding.norm_within(np.array([3, 4]), np.uint64(0), np.uint64(25))\n"
        "for name in kernels.COMPILED: getattr(kernels, name)\n"
        "from sparse_secagg.clipped_rows import as_rows, clip_factors\n"
        "clip_factors(as_rows(np.ones((2, 3))), 1.0)\n"
        "print([m for m in ('scipy', 'sklearn') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def called_kernels():
    """Return the (name, function) of every ``kernels.name.function`` that the package writes."""
    found = set()
    for path in ROOT.rglob("*.py"):
        tree = ast.parse(path.read_text())
        modules = {
            node: node.attr
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id == "kernels"
        }
        found |= {
            (modules[node.value], node.attr)
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute) and node.value in modules
        }
    return {(name, function) for name, function in found if not function.isupper()}


def test_every_kernel_that_is_called_has_a_twin():
    called = called_kernels()
    assert len(called) >= 15
    for name, function in called:
        assert hasattr(compiled(name), function), (name, function)
        assert function in twin(name).__all__, (name, function)


@pytest.mark.parametrize("name", kernels.COMPILED)
def test_twins_have_the_signatures_of_the_compiled(name):
    twins, common = twin(name), 0
    for function in twins.__all__:
        ours = getattr(twins, function)
        if not inspect.isfunction(ours):
            assert ours == getattr(compiled(name), function)
        elif function != "words_at":  # what other twins build on
            theirs = getattr(compiled(name), function).py_func
            assert list(inspect.signature(ours).parameters) == list(
                inspect.signature(theirs).parameters
            )
            common += 1
    assert common >= 1


def test_pieces_cover_a_range_in_order():
    found = [(piece.start, piece.stop) for piece in pieces(3, 20, 8)]
    assert found == [(3, 11), (11, 19), (19, 20)]
    assert list(pieces(5, 5)) == []


# -- hashing ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("start", [0, 12345, 2**64 - 50])
def test_words_of_a_stream(length, start):
    out = np.empty(length, dtype=np.uint64)
    assert_both_write_the_same("hashing", "fill_words", KEY, np.uint64(start), fresh(out * 0))


# -- count sketch ----------------------------------------------------------------------------------


def pair_tables(width, n=None, seed=9):
    """Two rows that hold something already, as they do from a second block on."""
    rng = np.random.default_rng(seed)
    shape = (width,) if n is None else (width, n)
    return rng.standard_normal(shape), rng.standard_normal(shape)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("width", [1, 7, 1000])
@pytest.mark.parametrize("length", LENGTHS)
def test_scattered_vectors(length, width, dtype):
    x = np.random.default_rng(0).standard_normal(length).astype(dtype)
    first, second = pair_tables(width)
    assert_both_write_the_same(
        "count_sketch", "scatter_one", x, 17, KEY, np.uint64(width), fresh(first), fresh(second)
    )


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(("length", "n"), [(0, 3), (1, 1), (65, 16), (70_001, 3)])
def test_scattered_batches(length, n, dtype):
    X = np.random.default_rng(1).standard_normal((length, n)).astype(dtype)
    first, second = pair_tables(50, n)
    assert_both_write_the_same(
        "count_sketch", "scatter_many", X, 5, KEY, np.uint64(50), fresh(first), fresh(second)
    )


def test_zeros_are_scattered_with_the_same_signs():
    x, zeros = np.array([0.0, -0.0, 1.0, -1.0] * 3), np.full(4, -0.0)
    assert_both_write_the_same(
        "count_sketch", "scatter_one", x, 0, KEY, np.uint64(4), fresh(zeros), fresh(zeros)
    )


@pytest.mark.parametrize(("start", "stop"), [(0, 0), (0, 1), (3, 40), (5, 100)])
def test_interleaved_entries(start, stop):
    X = np.random.default_rng(2).standard_normal((3, 100))
    out = np.zeros((97, 3))
    assert_both_write_the_same("count_sketch", "interleave", X, start, stop, fresh(out))


@pytest.mark.parametrize("n_rows", [1, 2, 5])
@pytest.mark.parametrize(("start", "stop"), [(0, 6), (2, 3), (4, 4)])
def test_scattered_sparse_rows(n_rows, start, stop):
    rng = np.random.default_rng(3)
    keys, width = rng.integers(0, 2**64, (n_rows + 1) // 2, dtype=np.uint64), 29
    sizes = [0, 1, 500, 0, 70_000, 3]
    ends = np.cumsum([0, *sizes])
    indices = np.concatenate([np.sort(rng.choice(10**6, size, replace=False)) for size in sizes])
    values = rng.standard_normal(len(indices))
    out = rng.standard_normal((6, n_rows * width))
    assert_both_write_the_same(
        "count_sketch", "scatter_sparse",
        values, indices, ends, keys, np.uint64(width), n_rows**-0.5, start, stop, fresh(out),
    )  # fmt: skip


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("n_pairs", [1, 3])
def test_gathered_entries(length, n_pairs):
    rng = np.random.default_rng(4)
    keys = rng.integers(0, 2**64, n_pairs, dtype=np.uint64)
    table = rng.standard_normal((2 * n_pairs, 31))
    out = rng.standard_normal(length)
    assert_both_write_the_same(
        "count_sketch", "gather_one", table, keys, np.uint64(31), 11, fresh(out)
    )


@pytest.mark.parametrize(("length", "n"), [(0, 2), (1, 5), (30_001, 16)])
def test_gathered_batches(length, n):
    rng = np.random.default_rng(5)
    keys = rng.integers(0, 2**64, 2, dtype=np.uint64)
    tables = rng.standard_normal((4, 31, n))
    out = rng.standard_normal((length, n))
    assert_both_write_the_same(
        "count_sketch", "gather_many", tables, keys, np.uint64(31), 11, fresh(out)
    )


@pytest.mark.parametrize("n_rows", [1, 4, 5])
@pytest.mark.parametrize("length", [0, 1, 999, LONG])
def test_hashed_columns(n_rows, length):
    rng = np.random.default_rng(6)
    keys = rng.integers(0, 2**64, (n_rows + 1) // 2, dtype=np.uint64)
    J = rng.integers(0, 2**40, length)
    buckets, signs = np.zeros((n_rows, length), dtype=np.int64), np.zeros((n_rows, length))
    assert_both_write_the_same(
        "count_sketch", "hash_columns", keys, np.uint64(2**31 - 1), J, fresh(buckets), fresh(signs)
    )


# -- transforms ------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("log2", [0, 1, 2, 5, 6, 7, 9, 10, 13, 14, 15, 17])
def test_transformed_rows(log2, dtype):
    X = np.random.default_rng(7).standard_normal((2, 2**log2)).astype(dtype)
    assert_both_write_the_same(
        "walsh_hadamard", "transform_rows", fresh(X), dtype(2.0**log2) ** dtype(-0.5)
    )


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(("start", "n"), [(0, 2**11), (2**11, 2**11), (0, 2**14), (2**16, 2**16)])
def test_transformed_blocks(start, n, dtype):
    a = np.random.default_rng(8).standard_normal(2**17).astype(dtype)
    assert_both_write_the_same("walsh_hadamard", "transform_block", fresh(a), start, n)


@pytest.mark.parametrize("scale", [None, 0.1])
@pytest.mark.parametrize("n_stages", [1, 2, 3, 4])
@pytest.mark.parametrize(("start", "stop"), [(0, 2**13), (64, 192), (2**12, 2**13)])
def test_combined_columns(start, stop, n_stages, scale):
    h = 2**13
    a = np.random.default_rng(9).standard_normal(h << n_stages)
    assert_both_write_the_same(
        "walsh_hadamard", "combine", fresh(a), start, stop, h, n_stages, scale
    )


@pytest.mark.parametrize(("length", "start", "stop"), [(0, 0, 8), (5, 2, 8), (5, 6, 8), (9, 0, 8)])
def test_signed_and_padded_vectors(length, start, stop):
    x = np.arange(-2.0, length - 2.0)
    signs = random_signs(KEY, length, np.int8)
    padded = np.full(10, 7.0)
    assert_both_write_the_same("hadamard", "fill_signed", x, signs, start, stop, fresh(padded))


def test_gathered_rows():
    rng = np.random.default_rng(10)
    padded, rows = rng.standard_normal(256), rng.integers(0, 256, 31)
    assert_both_write_the_same("hadamard", "gather", padded, rows, 1 / 3, fresh(np.zeros(31)))


@pytest.mark.parametrize("b", range(8))
def test_gathered_parts(b):
    rng = np.random.default_rng(11)
    part, rows = rng.standard_normal(64), rng.permutation(512)
    out = rng.standard_normal(512)
    assert_both_write_the_same("hadamard", "gather_part", part, b, rows, 3, 500, fresh(out))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(("d", "log2"), [(1, 0), (5, 3), (512, 9), (1000, 10), (50_000, 16)])
def test_sketched_rows(d, log2, dtype):
    rng = np.random.default_rng(12)
    D = 2**log2
    x = rng.standard_normal(d).astype(dtype)
    signs = random_signs(KEY, d, np.int8)
    rows = smallest_words(KEY, D, max(1, D // 5))
    assert_both_write_the_same(
        "hadamard", "sketch_row",
        x, signs, rows, D**-0.5, 5**0.5, fresh(np.full(D, 3.0)), fresh(np.zeros(len(rows))),
    )  # fmt: skip


# -- inversion -------------------------------------------------------------------------------------

DISTRIBUTIONS = [
    Gaussian(Fraction(1, 10)),
    Gaussian(Fraction(12)),
    Gaussian(Fraction(10**5, 3)),
    Poisson(Fraction(1, 10)),
    Poisson(Fraction(5, 2)),
    Poisson(Fraction(1000, 3)),
]


def words_near(thresholds):
    """Words at the thresholds, beside them and at the ends of the range, for both sides."""
    odd = thresholds[:, None] + np.array([-2, 0, 2]).astype(np.uint64)
    ends = np.array([0, 2, 2**63, 2**64 - 2], dtype=np.uint64)
    words = np.concatenate([odd.ravel() & ~np.uint64(1), ends])
    return np.concatenate([words, words | np.uint64(1)])


def invert_all(invert, table, words, slack):
    """Return all samples, with a mark where a word is undecided, in the memory of the words."""
    samples = words.copy().view(np.int64)
    remaining, done, undecided = samples.view(np.uint64), 0, []
    while True:
        done += invert(
            remaining[done:], samples[done:], table.guide, table.thresholds, table.cell_bits,
            table.stride, table.centre, table.mirror, slack,
        )  # fmt: skip
        if done == len(samples):
            return samples, undecided
        assert remaining[done] == words[done]  # what is not decided is not overwritten
        undecided.append(done)
        done += 1


@pytest.mark.parametrize("distribution", DISTRIBUTIONS, ids=repr)
@pytest.mark.parametrize("n_bits", [6, 8, 12, 63])
def test_tables_and_guides(distribution, n_bits):
    if n_bits < 12 and distribution in (DISTRIBUTIONS[2], DISTRIBUTIONS[5]):
        pytest.skip("thresholds so short coincide, which no guide resolves")
    one, two = with_both(lambda: build_table(distribution, n_bits=n_bits))
    for field in ("thresholds", "guide", "cell_bits", "stride", "centre", "mirror"):
        assert_same_bits(getattr(one, field), getattr(two, field))


@pytest.mark.parametrize("first", [0, 9])
@pytest.mark.parametrize("bits", [1, 2, 3, 6])
def test_a_guide_whose_cells_are_too_wide_is_refused(first, bits):
    table = build_table(Poisson(Fraction(5, 2)))
    sides = [0, int(table.mirror) - 1]
    one, two = (
        [
            module.fill_guide(np.zeros(65 << bits, np.int32), table.thresholds, k, np.uint64(bits))
            for k in sides
        ]
        for module in (compiled("inversion"), twin("inversion"))
    )
    assert one == two
    assert one[0] == (np.uint64(bits) >= table.cell_bits) or not one[1]


@pytest.mark.parametrize("seed", range(40))
def test_guides_of_thresholds_at_the_ends_of_cells(seed):
    """Cells begin at (4 + j)·2^s for two bits: thresholds there, beside them and between them."""
    rng = np.random.default_rng(seed)
    firsts = [(4 + int(rng.integers(4))) << int(rng.integers(62)) for _ in range(3)]
    near = {v + step for v in firsts for step in (-1, 1, 3, 5) if 1 < v + step < 2**64}
    chosen = sorted((v for v in near if rng.random() < 0.6), reverse=True)
    thresholds = np.array(chosen, dtype=np.uint64)
    side = np.concatenate([thresholds, [np.uint64(1)]]).astype(np.uint64) | np.uint64(1)
    both_sides = np.concatenate([side, side])
    for first in (0, len(side)):
        make = fresh(np.zeros(65 << 2, dtype=np.int32))
        (one, (a, *_)), (two, (b, *_)) = both(
            "inversion", "fill_guide", make, both_sides, first, np.uint64(2)
        )
        assert one == two
        if one:
            assert_same_bits(a, b)


@pytest.mark.parametrize("distribution", DISTRIBUTIONS, ids=repr)
@pytest.mark.parametrize("n_bits", [6, 8, 12, 63])
def test_inverted_words(distribution, n_bits):
    if n_bits < 12 and distribution in (DISTRIBUTIONS[2], DISTRIBUTIONS[5]):
        pytest.skip("thresholds so short coincide, which no guide resolves")
    table = build_table(distribution, n_bits=n_bits)
    slack = np.uint64(2 ** (64 - n_bits) - 2)
    random = np.random.default_rng(13).integers(0, 2**64, 3000, dtype=np.uint64)
    words = np.concatenate([words_near(table.thresholds), random])
    one, skipped = invert_all(compiled("inversion").invert, table, words, slack)
    two, skipped_too = invert_all(twin("inversion").invert, table, words, slack)
    assert skipped == skipped_too
    assert len(skipped) >= len(table.thresholds)
    assert_same_bits(one, two)


def test_no_words_are_inverted_to_no_samples():
    table, nothing = build_table(DISTRIBUTIONS[1]), np.zeros(0, dtype=np.uint64)
    one, skipped = invert_all(twin("inversion").invert, table, nothing, np.uint64(0))
    assert len(one) == 0
    assert not skipped


@pytest.mark.parametrize("distribution", DISTRIBUTIONS, ids=repr)
def test_draws_from_a_table(distribution):
    n_bits = 63 if distribution in (DISTRIBUTIONS[2], DISTRIBUTIONS[5]) else 8
    one, two = with_both(
        lambda: draw(build_table(distribution, n_bits), 3000, SimulationRandomness(14))
    )
    assert_same_bits(one, two)


# -- the discrete Gaussian -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sigma2",
    [
        Fraction(1, 10),
        Fraction(12),
        Fraction(81, 2),
        Fraction(16 * 2**59 + 3, 2**59),  # compiled kernels leave some samples to Python
        Fraction(2500 * 2**20 + 1, 2**20),
        Fraction(10**15),
        Fraction(10**21 + 3, 10**18),  # all of them
        Fraction(10**50),
    ],
)
def test_draws_by_rejection(sigma2):
    """3000 samples take more words than one buffer holds."""
    one, two = with_both(lambda: draw_by_rejection(sigma2, 3000, SimulationRandomness(15)))
    assert one.tolist() == two.tolist()
    assert one.dtype == two.dtype


@pytest.mark.parametrize("sigma2", [Fraction(1, 4), Fraction(9, 2), Fraction(10**4), 10**6, 2**40])
@pytest.mark.parametrize("size", [0, 1, 50, 2000])
def test_discrete_gaussian_noise(sigma2, size):
    """Small σ or many samples by table, the others by rejection."""
    one, two = with_both(lambda: discrete_gaussian(Fraction(sigma2), size, SimulationRandomness(1)))
    assert_same_bits(one, two)


def test_a_twin_of_rejection_reads_no_words():
    nothing = [np.uint64(1)] * 6
    words = np.zeros(4, dtype=np.uint32)
    fill = twin("rejection").fill_gaussian
    assert fill(np.zeros(3, np.int64), 1, words, 2, *nothing) == (twin("rejection").NEED_BIG, 1, 2)
    assert fill(np.zeros(3, np.int64), 3, words, 2, *nothing) == (twin("rejection").DONE, 3, 2)


# -- rounding --------------------------------------------------------------------------------------

UNUSUAL = [0.0, -0.0, 0.5, -0.5, 1e300, -1e300, np.nan, np.inf, -np.inf, 2.0**62, -(2.0**62)]
UNUSUAL += [2.0**62 - 512, 2.0**53 + 2, -1e-300, 3.0, -3.0]


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("length", LENGTHS)
def test_rounded_vectors(length, dtype):
    rng = np.random.default_rng(16)
    with np.errstate(over="ignore"):
        unusual = np.resize(np.array(UNUSUAL, dtype=dtype), length)
    x = np.where(rng.random(length) < 0.5, unusual, (rng.normal(0, 10, length)).astype(dtype))
    words = rng.integers(0, 2**64, length, dtype=np.uint64)
    words[rng.random(length) < 0.1] = 0
    words[rng.random(length) < 0.1] = 2**64 - 1
    out = np.full(length, 7)
    assert_both_write_the_same("rounding", "round_stochastically", x, words, fresh(out))
    assert_both_write_the_same("rounding", "round_toward_zero", x, fresh(out))


@settings(max_examples=60)
@given(x=st.floats(width=64), word=st.integers(0, 2**64 - 1))
def test_any_number_is_rounded_alike(x, word):
    words = np.array([word], dtype=np.uint64)
    out = np.zeros(1, dtype=np.int64)
    assert_both_write_the_same("rounding", "round_stochastically", np.array([x]), words, fresh(out))


def assert_norms_are_judged_exactly(x):
    exact = sum(int(v) ** 2 for v in x)
    for limit in {0, max(exact - 1, 0), exact, exact + 1, exact // 2, 2**64, 2**127 - 1}:
        if limit >= 2**127:
            continue
        high, low = (np.uint64(v) for v in divmod(limit, 2**64))
        expected = exact <= limit
        assert compiled("rounding").norm_within(x, high, low) == expected
        assert twin("rounding").norm_within(x, high, low) is expected


@settings(max_examples=60)
@given(
    st.lists(
        st.integers(-(2**63), 2**63 - 1)
        | st.integers(-(2**23) - 2, -(2**23) + 2)
        | st.integers(2**23 - 2, 2**23 + 2)
        | st.integers(-5, 5)
        | st.sampled_from([2**22, 2**44, -(2**22), -(2**44), 2**44 - 1, -(2**63), 2**63 - 1]),
        max_size=20,
    )
)
def test_norms_of_any_integers(values):
    assert_norms_are_judged_exactly(np.array(values, dtype=np.int64))


@pytest.mark.parametrize(
    "value", [2**23, -(2**23), 2**23 + 1, 2**26, 2**44 - 1, -(2**44), 2**54, -(2**54)]
)
def test_norms_of_long_vectors(value):
    assert_norms_are_judged_exactly(np.full(70_000, value))


def test_norms_of_extremes():
    for values in ([-(2**63)], [2**63 - 1], [-(2**63)] * 2 + [2**63 - 1] * 2 + [-1]):
        assert_norms_are_judged_exactly(np.array(values, dtype=np.int64))


# -- rows ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("d", [0, 1, 65, 70_000])
def test_square_sums(d, dtype):
    X = np.random.default_rng(17).standard_normal((4, d)).astype(dtype)
    results = both("rows", "square_sums", X, 1, 3, fresh(np.full(4, -1.0)))
    (_, (*_, one)), (_, (*_, two)) = results
    np.testing.assert_allclose(two, one, rtol=1e-13)
    assert two[[0, 3]].tolist() == [-1, -1]


@pytest.mark.filterwarnings("error")
def test_square_sums_of_what_is_not_finite():
    X = np.array([[1.0, np.nan], [np.inf, 1.0], [1e200, 1.0], [np.inf, np.nan]])
    (_, (*_, one)), (_, (*_, two)) = both("rows", "square_sums", X, 0, 4, fresh(np.zeros(4)))
    np.testing.assert_array_equal(one, two)
    np.testing.assert_array_equal(two, [np.nan, np.inf, np.inf, np.nan])


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_square_sums_of_sparse_rows(dtype):
    sizes = [0, 3, 0, 0, 70_000, 1, 0]
    ends = np.cumsum([0, *sizes]).astype(np.int32)
    values = np.random.default_rng(18).standard_normal(ends[-1]).astype(dtype)
    values[1] = np.nan
    results = both("rows", "sparse_square_sums", values, ends, fresh(np.full(7, -1.0)))
    (_, (*_, one)), (_, (*_, two)) = results
    np.testing.assert_allclose(two, one, rtol=1e-13)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(("start", "stop"), [(0, 0), (0, 70_000), (5, 6)])
def test_added_rows(start, stop, dtype):
    rng = np.random.default_rng(19)
    X = rng.standard_normal((5, 70_000)).astype(dtype)
    before, after = rng.standard_normal((2, 5))
    total, clipped = rng.standard_normal((2, 70_000))
    assert_both_write_the_same(
        "rows", "add_rows", X, before, after, start, stop, fresh(total), fresh(clipped)
    )


def test_added_sparse_rows():
    """An index that comes twice in a row counts twice."""
    rng = np.random.default_rng(20)
    ends = np.cumsum([0, 4, 0, 70_000, 1])
    values, indices = rng.standard_normal(ends[-1]), rng.integers(0, 50, ends[-1])
    before, after = rng.standard_normal((2, 4))
    total, clipped = rng.standard_normal((2, 50))
    assert_both_write_the_same(
        "rows", "add_sparse_rows",
        values, indices, ends, before, after, fresh(total), fresh(clipped),
    )  # fmt: skip


# -- residues --------------------------------------------------------------------------------------

MODULI = [2, 3, 255, 2**16, 2**32 + 1, 2**62 - 57, 2**63 - 1, 2**63]


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.int64, np.uint64])
@pytest.mark.parametrize("modulus", MODULI)
@pytest.mark.parametrize("length", [0, 3, 70_000])
def test_values_in_range(modulus, length, dtype):
    rng = np.random.default_rng(21)
    largest = min(modulus - 1, np.iinfo(dtype).max)
    rows = rng.integers(0, largest, (6, length), dtype=dtype, endpoint=True)
    if length:
        rows[1, -1] = largest
        rows[2, -1] = min(modulus, np.iinfo(dtype).max)
        rows[3, 0] = max(np.iinfo(dtype).min, -1)
    valid = np.array([True, False] * 3)
    assert_both_write_the_same("modular", "in_range", rows, np.uint64(modulus), fresh(valid), 1, 5)


@pytest.mark.parametrize("modulus", MODULI)
@pytest.mark.parametrize("dtype", [np.int64, np.uint64])
def test_sums_modulo(modulus, dtype):
    rng = np.random.default_rng(22)
    rows = rng.integers(0, modulus - 1, (9, 40), dtype=dtype, endpoint=True)
    rows[:5] = modulus - 1
    included = np.array([1, 1, 1, 1, 0, 1, 0, 1, 1], dtype=bool)
    rows[6, 0] = -1 if dtype == np.int64 else 2**64 - 1  # is not in the sum
    total = rng.integers(0, modulus - 1, 40, dtype=np.uint64, endpoint=True)
    assert_both_write_the_same(
        "modular", "add_rows", fresh(total), rows, included, np.uint64(modulus), 3, 37
    )
    added, _ = both("modular", "add_rows", fresh(total), rows, included, np.uint64(modulus), 0, 40)
    exact = total.astype(object) + rows[included].astype(object).sum(axis=0)
    assert added[1][0].tolist() == (exact % modulus).tolist()


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint32, np.uint64])
@pytest.mark.parametrize("filled", [0, 4, 29, 30])
def test_kept_residues(dtype, filled):
    modulus = np.uint64(3 * (np.iinfo(dtype).max // 8))
    low_bits = np.uint64((1 << int(modulus).bit_length()) - 1)
    words = np.random.default_rng(23).integers(
        0, np.iinfo(dtype).max, 40, dtype=dtype, endpoint=True
    )
    residues = np.arange(30).astype(dtype)
    (one, first), (two, second) = both(
        "modular", "keep_residues", words, low_bits, modulus, fresh(residues), filled
    )
    assert one == two
    assert one > filled or filled == 30
    assert_same_bits(first[3][:one], second[3][:two])


@pytest.mark.parametrize(
    ("modulus", "residue", "total"),
    [(200, np.uint8, np.uint32), (50_000, np.uint16, np.uint32), (2**40 + 1, np.uint64, np.uint64)],
)
@pytest.mark.parametrize("negative", [False, True])
def test_lazy_sums(modulus, residue, total, negative):
    rng = np.random.default_rng(24)
    residues = rng.integers(0, modulus, 70_000).astype(residue)
    sums = rng.integers(0, 10 * modulus, 70_000).astype(total)
    assert_both_write_the_same(
        "modular", "add_lazily", fresh(sums), residues, total(modulus), negative
    )


@pytest.mark.parametrize("modulus", MODULI)
@pytest.mark.parametrize("negative", [False, True])
def test_sums_of_residues(modulus, negative):
    rng = np.random.default_rng(25)
    a, b = rng.integers(0, modulus - 1, (2, 70_000), dtype=np.uint64, endpoint=True)
    a[:4], b[:4] = [0, 0, modulus - 1, modulus - 1], [0, modulus - 1, 0, modulus - 1]
    assert_both_write_the_same(
        "modular", "add_residues", a, b, np.uint64(modulus), negative, fresh(a * 0)
    )
    out = a.copy()
    twin("modular").add_residues(out, b, np.uint64(modulus), negative, out)
    exact = (a.astype(object) + (-1 if negative else 1) * b.astype(object)) % modulus
    assert out.tolist() == exact.tolist()


@pytest.mark.parametrize("modulus", [2**16, 200, 50_000, 2**31 - 1, 2**40 + 1])
def test_masks(modulus):
    def work():
        total = MaskSum(40_000, modulus)
        for i in range(3):
            total.add(bytes([i]) * 32, 1 - 2 * (i % 2))
        return add_modulo(total.value(), total.value(), modulus, -1), total.value()

    (zero, one), (zero_too, two) = with_both(work)
    assert_same_bits(zero, zero_too)
    assert_same_bits(one, two)


# -- the wire --------------------------------------------------------------------------------------


def values_of(bits, length, dtype=np.uint64):
    rng = np.random.default_rng(bits)
    values = rng.integers(0, 2**bits - 1, length, dtype=np.uint64, endpoint=True)
    values[: length // 3] = 2**bits - 1
    return values.astype(dtype)


@pytest.mark.parametrize("bits", range(1, 64))
@pytest.mark.parametrize("length", [0, 1, 63, 64, 65, 200])
def test_packed_words(bits, length):
    values = values_of(bits, length)
    words = np.zeros(-(-length * bits // 64) + 1, dtype="<u8")
    assert_both_write_the_same("wire", "pack_words", values, bits, fresh(words))
    compiled("wire").pack_words(values, bits, words)
    back = np.empty(length, dtype=np.uint64)
    assert_both_write_the_same("wire", "unpack_words", words, bits, fresh(back * 0))
    twin("wire").unpack_words(words, bits, back)
    assert_same_bits(back, values)


@pytest.mark.parametrize("bits", [1, 17, 32, 63])
@pytest.mark.parametrize("dtype", [np.int64, np.uint64])
def test_packed_words_of_several_pieces(bits, dtype):
    values = values_of(bits, LONG, dtype)
    one, two = with_both(lambda: pack(values, bits))
    assert one == two
    words = np.zeros(-(-LONG * bits // 64) + 1, dtype="<u8")
    words.view(np.uint8)[: len(one)] = np.frombuffer(one, dtype=np.uint8)
    back = np.empty(LONG, dtype=np.uint64)
    twin("wire").unpack_words(words, bits, back)
    assert_same_bits(back.astype(dtype), values)


# -- what is made of them --------------------------------------------------------------------------


def test_public_randomness():
    one, two = with_both(lambda: (random_signs(KEY, 1000), smallest_words(KEY, 1000, 70)))
    for a, b in zip(one, two):
        assert_same_bits(a, b)


def test_transforms_of_one_long_vector_by_several_threads():
    x = np.random.default_rng(26).standard_normal(2**20)
    assert_same_bits(*with_both(lambda: fwht(x.copy())))


def test_rounded_vectors_within_a_bound():
    x = np.random.default_rng(27).normal(0, 3, 40_000)
    bound = int((x**2).sum()) + 8000
    one, two = with_both(lambda: conditional_rounding(x, bound, SimulationRandomness(2)))
    assert_same_bits(one, two)


def test_a_server_adds_alike():
    rows = np.random.default_rng(28).integers(0, 1000, (20, 5000))
    rows[3, 7] = 1000

    def work():
        checked, faults = check_messages(rows, 1000, "exclude")
        included = np.array([i not in faults for i in range(20)])
        return faults, modular_sum(checked, 1000, included)

    (faults, one), (faults_too, two) = with_both(work)
    assert faults == faults_too == {3: "has values outside [0, 1000)"}
    assert_same_bits(one, two)


@pytest.mark.parametrize("mechanism", ["ddg", "skellam"])
@pytest.mark.parametrize("encoder", ["count_sketch", "hadamard", "identity"])
def test_messages_are_the_same_bytes(encoder, mechanism):
    spec = RoundSpec(epsilon=4.0, n_bits=18, encoder=encoder, mechanism=mechanism)
    config = spec.config(3000, 50)
    rng = np.random.default_rng(29)
    for x in (rng.standard_normal(3000), 1e-3 * rng.standard_normal(3000, dtype=np.float32)):

        def work(x=x):
            policy = ClientPolicy(max_epsilon=4.0, max_delta=1e-5)
            return client_encode(config, x, policy=policy, rng=SimulationRandomness(3))

        one, two = with_both(work)
        assert one == two
