"""Makes the catalogues of workloads/data anew: German and English pairs from message catalogues.

    apt-get download postgresql-15=15.20-0+deb12u1 postgresql-client-15=15.20-0+deb12u1
    pip download --no-deps horizon==27.0.0 wagtail==8.0.1 Django==5.2.19
    python scripts/catalogues.py .        # the folder with these; needs dpkg-deb

What comes out is in the repository, as other versions have other messages. Of every pair: 3 to 60
English words, white space made single, neither equal nor said before. One in ten is for testing, by
a hash of its English words without names and numbers; of these the ones are left out of which a
training pair shares most words in either language, as messages are often variants of another.
"""

import gettext
import hashlib
import io
import re
import subprocess
import sys
import zipfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

OUT = Path(__file__).resolve().parents[1] / "harness" / "data" / "catalogues"
PACKAGES = (
    "postgresql-15_15.20-0+deb12u1_*.deb",
    "postgresql-client-15_15.20-0+deb12u1_*.deb",
    "horizon-27.0.0-*.whl",
    "wagtail-8.0.1-*.whl",
    "[Dd]jango-5.2.19-*.whl",
)
WORDS = range(3, 61)
ONE_IN = 10  # pairs is for testing
ALIKE = 0.6  # of the words of both together, that two sentences share
QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')
ESCAPED = {"n": "\n", "t": "\t", "r": "\r"}

Pair = tuple[str, str]  # German, English


def main(packages: Path) -> None:
    pairs: dict[str, str] = {}  # German by English
    for pattern in PACKAGES:
        [package] = packages.glob(pattern)
        before = len(pairs)
        for english, german in messages(package):
            fitting = all(len(each.split()) in WORDS for each in (english, german))
            if fitting and english != german:
                pairs.setdefault(english, german)
        print(f"{package.name}: {len(pairs) - before} pairs")
    train, test = split([(german, english) for english, german in pairs.items()])
    for name, part in (("train", train), ("test", test)):
        lines = "".join(f"{german}\t{english}\n" for german, english in part)
        (OUT / f"{name}.tsv").write_text(lines)
        print(f"{name}.tsv: {len(part)} pairs, {len(lines.encode())} bytes")


def messages(package: Path) -> Iterator[Pair]:
    """English and German, in the order of the files' names and then of the English."""
    found: list[Pair] = []
    if package.suffix == ".deb":
        with TemporaryDirectory() as folder:
            subprocess.run(["dpkg-deb", "-x", package, folder], check=True)
            for file in sorted(Path(folder).glob("usr/share/locale/de/LC_MESSAGES/*.mo")):
                found += compiled(file.read_bytes())
    else:
        archive = zipfile.ZipFile(package)
        names = [name for name in archive.namelist() if "/locale/de/LC_MESSAGES/" in name]
        for name in sorted(names):
            if name.endswith(".mo"):
                found += compiled(archive.read(name))
            elif name.endswith(".po") and name.removesuffix("po") + "mo" not in names:
                found += source(archive.read(name).decode())
    for english, german in found:
        yield single(english.rpartition("\4")[2]), single(german)


def compiled(content: bytes) -> list[Pair]:
    """Of a .mo file, singular forms."""
    catalogue = gettext.GNUTranslations(io.BytesIO(content))._catalog
    pairs = {key[0] if isinstance(key, tuple) else key: said for key, said in catalogue.items()
             if not (isinstance(key, tuple) and key[1])}  # fmt: skip
    return sorted(pairs.items())


def source(text: str) -> list[Pair]:
    """Of a .po file, singular forms that are not marked as doubtful."""
    found = []
    for entry in text.split("\n\n"):
        parts: dict[str, str] = defaultdict(str)
        word = ""
        for line in entry.splitlines():
            if line.startswith("#"):
                parts["fuzzy"] += "fuzzy" * ("fuzzy" in line and line.startswith("#,"))
                continue
            keyword = line.partition(" ")[0]
            word = keyword if keyword.startswith("msg") else word
            parts[word] += "".join(map(unescaped, QUOTED.findall(line)))
        said = parts["msgstr"] or parts["msgstr[0]"]
        if parts["msgid"] and said and not parts["fuzzy"]:
            found.append((parts["msgid"], said))
    return sorted(found)


def unescaped(text: str) -> str:
    return re.sub(r"\\(.)", lambda match: ESCAPED.get(match[1], match[1]), text)


def single(text: str) -> str:
    return " ".join(text.split())


def split(pairs: list[Pair]) -> tuple[list[Pair], list[Pair]]:
    """For training and for testing."""
    train, test = [], []
    for pair in pairs:
        digest = hashlib.sha256(" ".join(sorted(words(pair[1]))).encode()).digest()
        (train if int.from_bytes(digest[:4]) % ONE_IN else test).append(pair)
    known = [words(pair[side]) for side in (0, 1) for pair in train]
    having: dict[str, set[int]] = defaultdict(set)
    for number, each in enumerate(known):
        for word in each:
            having[word].add(number)
    return train, [pair for pair in test if not any(repeats(words(s), known, having) for s in pair)]


def words(sentence: str) -> frozenset[str]:
    """In lower case, without what stands for names and numbers."""
    return frozenset(re.findall(r"[a-zäöüß]+", re.sub(r"%\S+|\{\w*\}", " ", sentence.lower())))


def repeats(sentence: frozenset[str], known: list[frozenset[str]], having: dict) -> bool:
    shared: dict[int, int] = defaultdict(int)
    for word in sentence:
        for number in having.get(word, ()):
            shared[number] += 1
    return any(count >= ALIKE * len(sentence | known[number]) for number, count in shared.items())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
