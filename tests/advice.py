"""Follow what a refusal advises: the command lines that a reader of the answer would type next.

`harness` answers a bad command line in one line that often says what to write instead. `followed`
changes the command as that line says, and `is_later` tells whether that helped. `by_hand` makes
bad command lines of the kinds that people write.
"""

import random
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from omegaconf import OmegaConf

from harness.config import search_path
from harness.config.search_path import groups

Words = tuple[str, ...]
INTERVAL = re.compile(r"([\[(])(-?[\w.+^]+), (-?[\w.+^]+)[\])]")
AT_LEAST = re.compile(r"(>=|>|<=|<) (-?[0-9][\d.e+-]*)")
STAGES = {  # of a check, in order, and what a refusal of each says
    "read": ("cannot be read", "options must be", "are a sweep"),
    "keys": ("there is no key", "has no key", "has no choice", "is no key", "other keys",
             "it is there already", "leave this word out", "not all of"),
    "form": ("takes its keys one by one", "takes the name of a choice"),
}  # fmt: skip
KINDS = (  # of words in place of KEY=VALUE, and how many are drawn of each
    ("{key}={unit}", 60), ("{typo}={value}", 70), ("{place}{last}={value}", 30),
    ("~{key}", 15), ("~{key}={value}", 15), ("+{key}={value}", 15), ("++{key}={bad}", 15),
    ("--{key}={value}", 8), ("{key}", 8), ("{key}:{value}", 8), ("{key}=={value}", 8),
    ("{key} = {value}", 8), ("{key} {value}", 8), ("{key}=", 8), ("{key}={value},", 8),
    ("{key}='{value}", 8), ("{key}@here={value}", 8), ("{key}={broken}", 50), ("{key}={bad}", 50),
    ("{group}={choice_typo}", 40), ("{group}s={choice}", 8), ("{group}/{choice}=1", 8),
    ("{group}:{choice}", 8), ("{group} {choice}", 8), ("{group}={choice}.yaml", 8),
    ("--{group} {choice}", 6), ("+{group}={choice}", 8), ("~{group}", 8), ("~{group}={choice}", 8),
    ("{group}=[{choice}]", 8), ("{group}={choice},", 8), ("{group}={{}}", 6), ("{group}=", 6),
    ("{group}={{_target_: {target}}}", 12), ("{group}={{_target_: {target}, nosuch: 1}}", 12),
    ("++{group}={{_target_: x.Y}}", 6), ("{group}._target_={target}x", 12), ("{choice}", 12),
    ("{group}@here={choice}", 6), ("{choice}={group}", 6), ("{alias}={value}", 30),
)  # fmt: skip
UNITS = (
    "50%", "5ms", "3s", "10Mbit", "1GB", "2k", "1/2", "'0,5'", "'5 %'", "1e3x", "0x10", "1e3",
    "five", "~3", ">3", "--3", "0..3", "1,5",
)  # fmt: skip
BROKEN = (
    "[1", "{a: 1", "'a", '"', ")", "${", "${}", "${nosuch.key}", "${oc.env:NOSUCH}", "${nosuch:1}",
    "${optimizer.lrr}", "${..lr}", "${${steps}}", "a=b", "a, b", "choice(1,2)", "range(0,3",
    "[" * 900 + "]" * 900, "${" * 300 + "}" * 300, "???",
)  # fmt: skip
BAD = ("null", "{}", "[]", "[1, 2]", "{a: 1}", "true", "abc", "-1", "1.5", "nan", "1e30")
ALIASES = (
    "lr", "bandwidth", "latency", "nodes", "k", "ratio", "density", "rate_mbit", "batch", "wd",
    "seeds", "epoch", "max_steps", "learning_rate", "optimizer.learning_rate", "profile.rate",
    "profile.latency", "network.bandwidth", "model.layers", "dataset.name", "watch.steps",
    "optimizer.schedule.gamma", "scale.name", "hydra.run.dir", "network.congestion", "gpus",
)  # fmt: skip


def followed(words: Words, said: str) -> list[Words]:
    """Command lines that the answer `said` to `words` advises; the last word is the bad one."""
    *before, bad = words
    key, _, value = bad.partition("=")
    plain = key.lstrip("+~")
    found: list[str | Words] = []
    if "cannot be read" in said and bad[:100] not in said:
        return []  # of a line of an experiment
    for advice in re.findall(r"(?:;|:|,) write (.*?)(?=; |$)", said):
        found += _written(advice, bad, key, value)
    for names in re.findall(r"nearest: ([^;]*)", said):
        found += [_in_place(said, bad, each) for each in names.split(", ") if each != "..."]
    for name, group, choices in re.findall(r"; (\w+) is a key of (\w+)=([^;]*)", said):
        named = [each for each in choices.split(", ") if each != "..."]
        found += [(f"{group}={each}", f"{group}.{name}={value or 'null'}") for each in named]
    for names in re.findall(r"; choices: ([^;]*)", said):
        found += [f"{plain}={each}" for each in names.split(", ") if each != "basic"]
    for group in re.findall(r"`python -m harness --help ([\w/]+)` lists them", said):
        plus = "+" * (group == "experiment")
        listed = [] if "nearest" in said else list(search_path.choices(group))[:2]
        found += [f"{plus}{group}={each}" for each in listed]
    if section := re.search(r"a section takes its keys one by one: ([^;]*)", said):
        found += [f"{name}={_usual(name)}" for name in section[1].split(", ")]
    if "which needs -m" in said:
        found += [("-m", bad), *([f"{key}=[{value}]"] if "one list is" in said else [])]
    if "quote what has brackets or spaces" in said:
        found += [f"{key}='{value}'"]
    if "so write it without +" in said:
        found += [bad.lstrip("+")]
    if any(each in said for each in (": say one", "must be given", "leave this word out")):
        found += [()]
    if " must be " in said and ", got " in said and "; write " not in said:
        kinds = said.partition(" must be ")[2].partition(", got ")[0]
        found += [f"{plain}={each}" for each in examples(kinds)]
    lines = [(each,) if isinstance(each, str) else each for each in found]
    return [(*before, *each) for each in dict.fromkeys(lines)]


def stage(said: str) -> int:
    """How far the check got before it refused: 0 reading, 1 keys, 2 form, 3 values."""
    found = [n for n, marks in enumerate(STAGES.values()) if any(mark in said for mark in marks)]
    return min(found, default=len(STAGES))


def is_later(word: str, first: str, second: str) -> bool:
    """True if the refusal `second` comes after `first`, or is of another word than `word`.

    Of two refusals of values the second is later if it asks for something else.
    """
    before, after = stage(first), stage(second)
    name = re.split(r"[=:\s]", word.lstrip("+~-'"))[0].rpartition(".")[2]
    if after != before:
        return after > before or name not in second
    wanted = [each.partition(" must ")[2].partition(", got ")[0] for each in (first, second)]
    return name not in second or (before == len(STAGES) and wanted[0] != wanted[1])


def _written(advice: str, bad: str, key: str, value: str) -> Iterator[str | Words]:
    """What replaces the word `bad` where the answer says `write ADVICE`."""
    if re.fullmatch(r"a number of (\S+)", advice):
        yield f"{key}={''.join(re.findall(r'^[-+0-9.e]+', value.strip(QUOTE))) or 1}"
    elif advice.endswith(" beside it"):
        yield (advice.removesuffix(" beside it"), bad)
    elif advice.endswith("={...}"):
        yield f"{advice.removesuffix('{...}')}{value}"
    elif advice.startswith("one of its keys") or advice.startswith("elsewhere"):
        return
    else:
        for each in re.split(r" or |, ", advice) if "=" in advice else [advice]:
            name, sign, what = each.partition("=")
            if each == "the name of another folder":
                yield f"{key}=elsewhere"
            elif not sign:
                yield f"{key}={each}"
            elif what in ("", "VALUE"):
                yield f"{name}={value or _usual(name.lstrip('+'))}"
            else:
                yield each.split(" ")[0] if what != "FOLDER for the results" else "results=there"


QUOTE = "'\""


def _in_place(said: str, bad: str, name: str) -> str:
    """`bad` with a near name in place of the one that there is not."""
    key, _, value = bad.lstrip("+~").partition("=")
    if "in it" in said:  # of a module
        return f"{key}={value.rpartition('.')[0]}.{name}"
    if "has no choice" in said:
        return f"{bad.partition('=')[0]}={name}"
    if "there is no key" in said:
        return f"{name}={value or _usual(name)}"
    return f"{key.rpartition('.')[0]}.{name}={value or 'null'}"


def examples(kinds: str) -> list[str]:
    """Values that a text such as `a number in (0, 1] or null` allows."""
    found = ["true", "false"] * ("true or false" in kinds)
    found += ["null"] * bool(re.search(r"\bnull\b", kinds))
    if choices := re.match(r"one of ([a-z][\w, ]+)", kinds):
        found += re.split(r", | or ", choices[1].partition(" (")[0].rstrip())
    whole = "whole number" in kinds
    for left, low, high in INTERVAL.findall(kinds):
        if all(re.fullmatch(r"-?[\d.]+(e[+-]?\d+|\^\d+)?", end) for end in (low, high)):
            first, last = _number(low), _number(high)
            middle = first + (1.0 if whole else min(1.0, (last - first) / 2))
            ends = [first] * (left == "[") + [middle] * (middle < last)
            found += [_shown(end, whole) for end in ends]
    for sign, bound in AT_LEAST.findall(kinds):
        found += [_shown(float(bound) + {">": 1, "<": -1}.get(sign, 0), whole)]
    return found or ["1"] * bool(re.match("a (finite |whole )?number", kinds))


def _number(text: str) -> float:
    base, _, power = text.partition("^")
    return float(base) ** float(power or 1)


def _shown(value: float, whole: bool) -> str:
    return str(int(value)) if whole or value == int(value) else repr(value)


def _usual(key: str) -> str:
    """A value that `key` has by default, as a command line has it."""
    if key in groups():
        return next(iter(search_path.choices(key)))
    config: Any = OmegaConf.load(f"{search_path.CONF}/config.yaml")
    return shown(OmegaConf.select(config, key))


def shown(value: Any) -> str:
    """A value as a command line has it."""
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key}: {shown(each)}' for key, each in value.items())}}}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return f"[{', '.join(map(shown, value))}]"
    return "null" if value is None else str(value).lower() if value in (True, False) else f"{value}"


def by_hand(compositions: Sequence[tuple[Words, str, Any]], seed: int = 0) -> list[Words]:
    """Bad words beside a composition: of each of KINDS, with keys and values drawn by `seed`.

    A composition is its words, one of its keys and that key's value.
    """
    draw = random.Random(seed)
    found = []
    for kind, count in KINDS:
        for _ in range(count):
            words, key, value = draw.choice(compositions)
            group = draw.choice([each for each in groups() if search_path.choices(each)])
            choice = draw.choice(list(search_path.choices(group)))
            place, _, last = key.rpartition(".")
            target = f"{group}s.{choice}.{choice.title()}"
            bad = kind.format(
                key=key, last=last, value=shown(value), group=group, choice=choice, target=target,
                typo=f"{place}.{_typo(last, draw)}".lstrip("."), choice_typo=_typo(choice, draw),
                unit=draw.choice(UNITS), broken=draw.choice(BROKEN), bad=draw.choice(BAD),
                place=draw.choice(("", "optimizer.", "profile.", "network.", "emulation.")),
                alias=draw.choice(ALIASES),
            )  # fmt: skip
            found.append((*(words if "{key}" in kind else ()), bad))
    return list(dict.fromkeys(found))


def _typo(word: str, draw: random.Random) -> str:
    """`word` as it is misspelt."""
    at = draw.randrange(len(word))
    wrong = (
        word[:at] + word[at + 1 :], word[:at] + word[at] + word[at:], word.upper(), f"{word}s",
        word.replace("_", "-"), word.replace("_", ""), word.rpartition("_")[0] or f"my_{word}",
        word[: max(2, len(word) // 2)],
    )  # fmt: skip
    return draw.choice(wrong) or f"{word}x"
