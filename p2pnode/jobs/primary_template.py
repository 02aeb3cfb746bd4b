"""How a primary is spoken to: templates of its commands, filled for one job; what answers mean.

Pure. Commands are lists of words and are never given to a shell; the file that goes with them is
made of values, not of text, so that nothing in a job can be read as something else there.
"""

import re
import shlex
import tomllib
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

from p2pnode.home import host_faults
from p2pnode.quantities import parse_span
from protocol.errors import LocalFault

SHIPPED: Final = ("dstack", "kubernetes", "skypilot")
"""Names under which templates come with this program."""
TEMPLATE_BYTES_MAX: Final = 65_536

Verb = Literal["start", "state", "log", "stop"]
Said = Literal["refused", "out_of_stock", "ended", "failed", "running", "absent", "unclear"]
"""`refused`: it will not have the job, and nothing of it is there. `out_of_stock`: it waits for
what there is not. `ended`: by itself. `failed`: in another way. `absent`: nothing is known of it.
"""

Values = Mapping[str, object]
"""What a template may name, see `values_of`; None where the job says nothing."""

_NAMED: Final = re.compile(r"\{([a-z][a-z0-9_]*)\}")
_ONLY_IF: Final = "if_given"


class Says(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[says]`: expressions to look for, in this order, in `exit CODE` and what was printed."""

    refused: str = ""
    out_of_stock: str = ""
    ended: str = ""
    """Its group `exit` is the program's exit code; 0 without one."""
    failed: str = ""
    running: str = ""
    absent: str = ""


class Template(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One kind of primary."""

    about: str
    start: tuple[str, ...]
    state: tuple[str, ...]
    stop: tuple[str, ...]
    """Nothing of the job is left there; may be said again, and of what is not there."""
    log: tuple[str, ...] = ()
    """Prints all that the job has printed so far."""
    log_exits: tuple[int, ...] = (0,)
    """With other codes it has printed no log."""
    says: Says = Says()
    file: dict[str, Any] = {}
    needs: tuple[str, ...] = ()
    """What a job must have been given to be sent there."""
    start_within: str = "60s"
    """What does not run by then is out of stock."""
    answer_within: str = "20s"
    poll: str = "2s"

    def check(self, values: Values) -> None:
        """Raises LocalFault if this job cannot be said in this template."""
        for name in self.needs:
            if values.get(name) is None:
                raise LocalFault(f"The primary needs --{name}.", f"run --{name} ...")
        if values["input"] is not None and "input" not in self._names():
            raise LocalFault(
                "The primary takes no input directory.", "put it into the image, or fetch it there"
            )

    def words(self, verb: Verb, values: Values) -> list[str]:
        """The command, each word filled; those that name what the job lacks are left out."""
        command: tuple[str, ...] = getattr(self, verb)
        filled = (_fill(word, values) for word in command)
        return [str(word) for word in filled if word is not None]

    def document(self, values: Values) -> bytes:
        """The file that goes along, as JSON, which is YAML too."""
        return msgspec.json.format(msgspec.json.encode(_fill(self.file, values)), indent=2)

    def read(self, code: int, printed: str) -> tuple[Said, int | None]:
        """What an answer means, and the exit code of the program where it has ended."""
        text = f"exit {code}\n{printed}"
        for said in ("refused", "out_of_stock", "ended", "failed", "running", "absent"):
            pattern = getattr(self.says, said)
            found = re.search(pattern, text) if pattern else None
            if found is not None and said == "ended":
                return said, int(found.groupdict().get("exit") or 0) & 0xFF
            if found is not None:
                return said, None
        return "unclear", None

    def is_gone(self, code: int, printed: str) -> bool:
        """Whether an answer to `state` says that nothing of the job goes on there."""
        text = f"exit {code}\n{printed}"
        patterns = (self.says.failed, self.says.absent)
        return any(pattern and re.search(pattern, text) for pattern in patterns)

    def _names(self) -> set[str]:
        words = repr((self.start, self.state, self.log, self.stop, self.file))
        return {found[1] for found in _NAMED.finditer(words)}


def load_template(name: str) -> Template:
    """The template of this name, or in this file. Raises LocalFault."""
    text = template_text(name)
    try:
        template = msgspec.convert(tomllib.loads(text), Template)
        for span in (template.start_within, template.answer_within, template.poll):
            parse_span(span)
        for said in msgspec.structs.fields(Says):
            re.compile(getattr(template.says, said.name))
    except (tomllib.TOMLDecodeError, msgspec.ValidationError, re.error) as error:
        raise LocalFault(f"{name} is no template of a primary: {error}.", _CURE) from error
    for verb in ("start", "state", "stop"):
        if not getattr(template, verb):
            raise LocalFault(f"{name} is no template of a primary: {verb} is empty.", _CURE)
    if unknown := template._names() - set(VALUES):  # noqa: SLF001 - of our own
        raise LocalFault(
            f"{name} names {', '.join(sorted(unknown))}, which no job has.",
            f"there are {', '.join(VALUES)}",
        )
    return template


_CURE: Final = "p2pnode primary show kubernetes is one"


def template_text(name: str) -> str:
    """What is in the template of this name, or in this file. Raises LocalFault."""
    if name in SHIPPED:
        return (files("p2pnode") / "primary_templates" / f"{name}.toml").read_text("utf-8")
    if "/" not in name:
        raise LocalFault(
            f"There is no template {name!r}.", f"{', '.join(SHIPPED)}, or the path of a file"
        )
    with host_faults(f"read {name}"), Path(name).expanduser().open("rb") as file:
        return file.read(TEMPLATE_BYTES_MAX).decode("utf-8", "replace")


def _fill(value: object, values: Values) -> object:
    """The value with what it names in its place; None if that is not there."""
    match value:
        case str():
            return _fill_text(value, values)
        case dict():
            wanted = value.get(_ONLY_IF)
            if wanted is not None and values.get(wanted) is None:
                return None
            rest = ((key, _fill(item, values)) for key, item in value.items() if key != _ONLY_IF)
            return {key: item for key, item in rest if item is not None}
        case list():
            return [item for each in value if (item := _fill(each, values)) is not None]
        case _:
            return value


def _fill_text(text: str, values: Values) -> object:
    whole = _NAMED.fullmatch(text)
    if whole is not None:
        return values[whole[1]]
    named = {found[1] for found in _NAMED.finditer(text)}
    if any(values[name] is None for name in named):
        return None
    # In one pass: what a value says is not looked at again.
    return _NAMED.sub(lambda found: str(values[found[1]]), text)


def values_of(
    *,
    name: str,
    argv: tuple[str, ...],
    variables: Mapping[str, str],
    image: str | None,
    input_folder: str | None,
    models: tuple[str, ...],
    regions: tuple[str, ...],
    gpus: int,
    vram_mib: int,
    cpus_milli: int,
    memory_mib: int,
    disk_mib: int,
    time_ms: int,
    file: str = "",
) -> dict[str, object]:
    """All that a template may name, of one job."""
    time_s = -(-time_ms // 1_000)
    words = ["".join(model.split()) for model in models]
    doubled = {key: value.replace("$", "$$") for key, value in variables.items()}
    return {
        "name": name,
        "file": file,
        "argv": list(argv),
        "argv_doubled": [word.replace("$", "$$") for word in argv],
        "command": shlex.join(argv),
        "command_doubled": shlex.join(argv).replace("$", "$$"),
        "variables": dict(variables) or None,
        "variables_doubled": doubled or None,
        "env": [{"name": key, "value": value} for key, value in variables.items()] or None,
        "env_doubled": [{"name": key, "value": value} for key, value in doubled.items()] or None,
        "image": image,
        "input": input_folder,
        "model": models[0] if models else None,
        "models": list(models) or None,
        "model_word": words[0] if words else None,
        "model_words": words or None,
        "regions": list(regions) or None,
        "gpus": gpus,
        "vram_mib": vram_mib if vram_mib > 1 else None,
        "vram_mib_less_one": str(vram_mib - 1),
        "vram_gib": -(-vram_mib // 1_024),
        "cpus_milli": cpus_milli,
        "cpus_whole": -(-cpus_milli // 1_000),
        "memory_mib": memory_mib,
        "memory_gib": -(-memory_mib // 1_024),
        "disk_mib": disk_mib,
        "disk_gib": -(-disk_mib // 1_024),
        "time_s": time_s,
        "deadline_s": time_s + 120,
    }


VALUES: Final = tuple(
    values_of(
        name="job", argv=("true",), variables={}, image=None, input_folder=None, models=(),
        regions=(), gpus=1, vram_mib=1, cpus_milli=1, memory_mib=1, disk_mib=1, time_ms=1,
    )
)  # fmt: skip
"""What a template may name."""
