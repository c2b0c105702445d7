"""Pairs of sentences from train.tsv and test.tsv: two sentences a line, with a tab between.

Words are pieces of a sentencepiece model (Kudo and Richardson, 2018): byte-pair encoding (Sennrich
et al., 2016) of both languages together, trained on the training part alone.
"""

import hashlib
import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from harness.workloads.data.base import UNLABELLED, Batch, Plan, Shape, data_folder, not_found
from harness.workloads.data.kept import alone, cache_folder, replacing
from harness.workloads.models.transformer import BEGIN, END, PADDING, Translator

LAYOUT = "{}/train.tsv and test.tsv, a sentence, a tab and its translation on every line"
CATALOGUES = "catalogues"  # the data set that comes with the installation
PACKAGED = Path(__file__).parent / CATALOGUES
BEAM = 5  # of the translations that are judged, as fairseq's
UNKNOWN = 3
FORMAT = 1  # of a vocabulary that is kept; to be raised when it is trained otherwise
Sentences = tuple[str, str]
ORDERS = 4  # words in a row, at most
MORE = 10  # pieces that a translation may have beyond twice the batch's longest sentence


@dataclass(frozen=True)
class Pairs:
    """Sentence pairs from `name`/ in the data folder, or from the message catalogues shipped.

    Training pairs with a sentence of more than `words` pieces are left out. Test pairs are not.
    """

    name: str
    folder: str | None = None
    words: int = 100  # of a sentence, its end included
    vocabulary: int = 10_000  # pieces of both languages together
    tokenize: str = "13a"  # of sacrebleu; none: for text that has been tokenised, as fairseq's is
    cache: str | None = None
    metric: ClassVar[str] = "bleu"
    label_smoothing: ClassVar[float] = 0.1  # of the loss

    def __post_init__(self) -> None:
        if not 2 <= self.words <= 1_000:
            raise ValueError(f"words must be in [2, 1000], got {self.words}")
        if not 300 <= self.vocabulary <= 1 << 16:  # 256 bytes among them
            raise ValueError(f"vocabulary must be in [300, {1 << 16}], got {self.vocabulary}")
        if self.tokenize not in ("13a", "none", "intl", "char"):
            raise ValueError(f"tokenize must be 13a, none, intl or char, got {self.tokenize!r}")

    @property
    def shape(self) -> Shape:
        return 2, self.words

    @property
    def classes(self) -> int:
        return self.vocabulary

    def check(self) -> None:
        for file in ("train.tsv", "test.tsv"):
            if not (self._place / file).is_file():
                layout, where = LAYOUT.format(self.name), f"no {self.name}/{file}"
                raise not_found(self.name, data_folder(self.folder), where, layout)
        try:
            import sacrebleu  # noqa: F401
            import sentencepiece  # noqa: F401
        except ImportError as error:
            raise FileNotFoundError(
                f"{self.name} needs {error.name}, which is not installed: pip install "
                "'gradnet[translation]'"
            ) from error

    def train(self) -> "Numbered":
        pieces, pairs = self.pieces(), list(read(self._place / "train.tsv"))
        numbers = [(pieces.encode(one), pieces.encode(other)) for one, other in pairs]
        fitting = [pair for pair in numbers if max(map(len, pair)) < self.words]
        if not fitting:
            raise ValueError(f"words must be more for {self._place}/train.tsv, got {self.words}")
        return Numbered(fitting)

    def test(self) -> "Numbered":
        """Return the test split, short sentences first, since a batch is as long as its longest."""
        pieces, pairs = self.pieces(), read(self._place / "test.tsv")
        numbers = [(pieces.encode(one), pieces.encode(other)) for one, other in pairs]
        return Numbered(sorted(numbers, key=lambda pair: max(map(len, pair))))

    @property
    def judge(self) -> Any:
        """Return the BLEU scorer for `harness.engine.training.task`."""

        return Bleu(self.pieces, self.tokenize, BEAM)

    @property
    def _place(self) -> Path:
        return PACKAGED if self.name == CATALOGUES else data_folder(self.folder) / self.name

    def pieces(self) -> Any:
        """Return the sentencepiece model, trained unless the cache has one of this very text."""
        import sentencepiece

        text = self._place / "train.tsv"
        content = text.read_bytes()
        of = hashlib.sha256(f"{FORMAT} {self.vocabulary} ".encode() + content).hexdigest()[:16]
        path = cache_folder(self.cache) / f"pieces-{of}.model"
        with alone(path):
            if not path.exists():
                sentences = [sentence for pair in read(text) for sentence in pair]
                model = _trained(sentences, self.vocabulary, text)
                with replacing(path) as temporary:
                    temporary.write_bytes(model)
        return sentencepiece.SentencePieceProcessor(model_file=str(path))


def read(path: Path) -> Iterator[Sentences]:
    """Return the pairs of a file. Raise ValueError with the first malformed line."""
    for number, raw in enumerate(path.read_bytes().splitlines(), start=1):
        where = f"{path}:{number}"
        try:
            pair = raw.decode().split("\t")
        except UnicodeDecodeError as error:
            raise ValueError(f"{where}: must be UTF-8 text: {error}") from error
        if len(pair) != 2 or not all(sentence.strip() for sentence in pair):
            raise ValueError(
                f"{where}: must be two sentences with a tab between, got {len(pair)} with "
                f"{[len(sentence.split()) for sentence in pair]} words"
            )
        yield pair[0], pair[1]


def _trained(sentences: list[str], vocabulary: int, text: Path) -> bytes:
    """Train a sentencepiece BPE model of `vocabulary` tokens. Return it, serialised.

    Training is deterministic: one thread, all sentences, no sampling. Any text can be encoded and
    decoded without loss. Unknown characters become byte tokens, of which there are 256. Raise
    ValueError if `vocabulary` does not suit the sentences; the message names the file `text`.
    """
    import sentencepiece

    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(sentences), model_writer=model, model_type="bpe",
            vocab_size=vocabulary, character_coverage=1.0, num_threads=1,
            normalization_rule_name="identity", byte_fallback=True,
            pad_id=PADDING, bos_id=BEGIN, eos_id=END, unk_id=UNKNOWN, minloglevel=2,
        )  # fmt: skip
    except RuntimeError as error:
        raise ValueError(f"vocabulary must fit {text}, got {vocabulary}: {error}") from error
    return model.getvalue()


class Numbered:
    """One split of a translation data set: pairs of sentences as lists of token numbers.

    A batch is as long as its longest sentence. Inputs are [n, 2, words]: the first sentence with
    its END, and the second from BEGIN on. Labels [n, words] are the second with its END.
    """

    in_order = False

    def __init__(self, pairs: list[tuple[list[int], list[int]]]) -> None:
        self._pairs = pairs

    def __len__(self) -> int:
        return len(self._pairs)

    def stream(self, plan: Plan) -> Iterator[Batch]:
        for indices, _ in plan:
            pairs = [self._pairs[index] for index in indices.tolist()]
            length = 1 + max(len(sentence) for pair in pairs for sentence in pair)
            source = _padded([[*one, END] for one, _ in pairs], length, PADDING)
            target = _padded([[BEGIN, *other] for _, other in pairs], length, PADDING)
            labels = _padded([[*other, END] for _, other in pairs], length, UNLABELLED)
            yield torch.stack([source, target], dim=1), labels


def _padded(rows: list[list[int]], length: int, filling: int) -> Tensor:
    return torch.tensor([[*row, *[filling] * (length - len(row))] for row in rows])


@dataclass(frozen=True)
class Bleu:
    """Judge of translations by BLEU (Papineni et al., 2002), computed by sacrebleu (Post, 2018).

    Beam search finds the translations. All counts are sums over sentences, so workers add theirs.
    """

    pieces: Callable[[], Any]  # the model of sentencepiece
    tokenize: str = "13a"
    beam: int = 1
    size: int = 2 * ORDERS + 2

    def sums(self, model: Any, inputs: Tensor, labels: Tensor) -> Tensor:
        """Return matches and n-grams of every order, and words of translations and references."""
        from sacrebleu.metrics.bleu import BLEU

        assert isinstance(model, Translator)
        pieces = self.pieces()
        source = inputs[:, 0].long()
        longest = int((source != PADDING).sum(1).max())
        words = model.translated(source, MORE + 2 * longest, self.beam)
        said = [pieces.decode(_until_end(row)) for row in words.tolist()]
        wanted = [pieces.decode(_until_end(row)) for row in labels.tolist()]
        found = BLEU(tokenize=self.tokenize).corpus_score(said, [wanted])
        counts = [*found.counts, *found.totals, found.sys_len, found.ref_len]
        return torch.tensor(counts, dtype=torch.float64)

    def quality(self, sums: Tensor) -> float:
        """Return BLEU in [0, 100] from the sums of all sentences, smoothed as sacrebleu does."""
        from sacrebleu.metrics.bleu import BLEU

        counts = [int(each) for each in sums.tolist()]
        matches, totals, (said, wanted) = counts[:ORDERS], counts[ORDERS:-2], counts[-2:]
        return BLEU.compute_bleu(matches, totals, said, wanted, smooth_method="exp").score


def _until_end(row: list[int]) -> list[int]:
    return row[: row.index(END)] if END in row else [number for number in row if number >= 0]
