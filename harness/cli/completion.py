"""Shell completion: `gradnet --completion bash|zsh|fish` prints a script.

The script contains the current commands, options, groups, choices and keys of conf/.
"""

from harness.config import parts, search_path
from harness.config.typed import require

OPTIONS = ("--help", "--version", "--cfg", "--config-dir", "--studies", "--completion", "-m")
WITHOUT_KEYS = (
    "experiment",
    "method",
    "scale",
    "workload",
)  # groups whose choices set keys of other groups
NOT_COMPLETED = ("hydra", "folder", "comparison", "seeds")  # keys that command lines do not set
SHELLS = {  # VALUES: words GROUP=CHOICE; KEYS: SECTION.KEY=; NAMES: all others
    "bash": """\
_gradnet() {
  local word=${COMP_LINE:0:COMP_POINT} words="NAMES"
  word=${word##*[[:space:]]}
  [[ $word == *.* ]] && words="KEYS"
  [[ $word == *=* ]] && words="VALUES"
  COMPREPLY=($(compgen -W "$words" -- "$word"))
  [[ $word == *=* && $COMP_WORDBREAKS == *=* ]] && COMPREPLY=("${COMPREPLY[@]#*=}")
  [[ ${COMPREPLY[0]} == *[.=] ]] && compopt -o nospace
}
complete -F _gradnet gradnet
""",
    "zsh": """\
#compdef gradnet
_gradnet() {
  case $PREFIX in
    *=*) compadd -- VALUES ;;
    *.*) compadd -S '' -- KEYS ;;
    *) compadd -S '' -- NAMES ;;
  esac
}
compdef _gradnet gradnet
""",
    "fish": """\
function __gradnet_words
  switch (commandline -ct)
    case '*=*'; string split ' ' 'VALUES'
    case '*.*'; string split ' ' 'KEYS'
    case '*'; string split ' ' 'NAMES'
  end
end
complete -c gradnet -f -a '(__gradnet_words)'
""",
}


def script(shell: str, commands: tuple[str, ...]) -> str:
    """Return the completion script of `shell`. Raise BadSetting if there is none for it."""
    require(shell in SHELLS, "--completion", shell, f"one of {', '.join(SHELLS)}")
    groups = {group: search_path.choices(group) for group in search_path.groups()}
    keys = {key for key in search_path.keys() if key.split(".")[0] not in NOT_COMPLETED}
    of_parts = [group for group in groups if group not in WITHOUT_KEYS]
    keys |= {f"{group}.{key}" for group in of_parts for name in groups[group]
             for key in parts.keys_of(group, name) if key[0] != "_"}  # fmt: skip
    sections = {key.rpartition(".")[0] for key in keys} - {""}
    plus = {group: f"{'+' * (group == 'experiment')}{group}" for group in groups}
    names = [f"{plus.get(key, key)}=" for key in keys if key in groups or key not in sections]
    values = [f"{plus[group]}={name}" for group in groups for name in groups[group]]
    values += [f"network/device={name}" for name in search_path.choices("network/device")]
    words = {
        "NAMES": [*commands, *OPTIONS, *(f"{section}." for section in sorted(sections)),
                  *sorted(name for name in names if "." not in name), "network/device="],
        "KEYS": sorted(name for name in names if "." in name),
        "VALUES": values,
    }  # fmt: skip
    text = SHELLS[shell]
    for name, replacements in words.items():
        text = text.replace(name, " ".join(replacements))
    return text
