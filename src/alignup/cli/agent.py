"""`alignup agent`: places work on this machine for all its users, and never forgets it.

It serves device plugins. What it logs, and how, is here for other programs that run on, too.
"""

from __future__ import annotations

import logging
import os
import resource
import sys
import time
import warnings
from contextlib import closing
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
import msgspec

from alignup.cli import options
from alignup.cli.failures import complain, need_extra
from alignup.cli.inputs import SiteSource
from alignup.errors import InputError, sentence_of, typed_text_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from alignup.host.agent.agent import AgentOptions
    from alignup.host.leases.file import LeaseFile
    from alignup.host.leases.users import Limits
    from alignup.kubernetes.versions import KubeletVersion

_LOG: Final = logging.getLogger(__name__)

# What may come with a record beside its message.
_EXTRAS: Final = ("lease", "uid", "resource", "seconds")

# Seconds of silence after which a server's error is said again.
_SILENCE: Final = 10.0

# With fewer, a program that serves has none left for what it is asked.
_DESCRIPTORS: Final = 64

# The least levels of syslog's priorities.
_PRIORITIES: Final = (
    (logging.CRITICAL, 2),
    (logging.ERROR, 3),
    (logging.WARNING, 4),
    (logging.INFO, 6),
    (0, 7),
)


class Serving(options.Gathered):
    """How the agent is to run."""

    socket: Path | None = options.path(
        "The socket where commands ask for leases.  [default: alignup/agent.sock in /run or "
        "$XDG_RUNTIME_DIR]"
    )
    group: str = options.value(
        "The group whose members may ask for leases.", default="", metavar="GROUP"
    )
    device_plugins: Path | None = options.path(
        "The folder where device plugins register, such as /var/lib/kubelet/device-plugins if no "
        "kubelet runs.  [default: device-plugins beside the socket]",
        metavar="DIR",
    )
    no_device_plugins: bool = options.flag("Serve no device plugins.")
    podresources: Path | None = options.path(
        "Serve PodResources (v1) on this socket.", metavar="PATH"
    )
    metrics: str = options.value(
        "Serve metrics for Prometheus; with a port alone, on loopback.",
        default="",
        metavar="[ADDRESS:]PORT|PATH",
    )
    limits: tuple[str, ...] = options.several(
        "The most that each user except root may hold. WHAT is cpus, memory, leases, waiting or a "
        "device resource.",
        *("WHAT=N", "--limit"),
    )
    no_fsync: bool = options.flag(
        "Do not fsync the journal. Leases then survive the end of the agent, but not a crash of "
        "the machine."
    )
    cgroup: Path | None = options.path(
        "Put each command into its own cgroup (v2) below this one.  [default: below the command's "
        "current cgroup, if the agent may]",
        metavar="DIR",
    )
    no_cgroups: bool = options.flag("Do not put commands into cgroups.")

    def options(self, version: KubeletVersion | None) -> AgentOptions:
        """Return the same, checked.

        Raises:
            InputError: one of the limits is none, or nothing says where the socket is to be.
            click.UsageError: options exclude each other.
        """
        from alignup.host.agent.agent import AgentOptions
        from alignup.host.leases.source import SYSTEM_SOCKET
        from alignup.host.trusted_files import check_text

        if self.no_cgroups and self.cgroup is not None:
            raise click.UsageError("--cgroup and --no-cgroups exclude each other")

        path = (self.socket or default_socket()).absolute()
        if self.cgroup is not None:
            check_text(self.cgroup, "--cgroup")

        plugins = None
        if not self.no_device_plugins:
            plugins = self.device_plugins or path.parent / "device-plugins"

        return AgentOptions(
            path,
            self.group,
            limits_of(self.limits),
            plugins,
            self.podresources,
            self.metrics,
            version=version,
            cgroups=not self.no_cgroups,
            cgroup=self.cgroup and self.cgroup.absolute(),
            durable=not self.no_fsync,
            replaces_own_files=path == SYSTEM_SOCKET,
        )


@options.subcommand("agent", "0 ended as told to; 1 the disk failed")
def command(
    *,
    serving: Serving = options.all_of(Serving),
    logs: options.Logs = options.all_of(options.Logs),
    hand_back: bool = options.flag("Put the leases back into their file, and end."),
    repair: bool = options.flag(
        "Show which leases of a damaged journal are known and what a repair would do, and end."
    ),
    yes: bool = options.flag("With --repair: do the repair."),
    as_json: bool = options.flag(
        "With --repair or --hand-back: print one JSON object, and nothing else.", "--json"
    ),
    site: SiteSource = options.all_of(SiteSource),
    version: KubeletVersion | None = options.kubelet_version,
    state: Path | None = options.state,
) -> int:
    """Place work on this machine for all its users, and serve device plugins.

        alignup agent --group hpc --limit cpus=16

    The agent takes over the file of leases. `alignup run`, `ps`, `release` and `split` then ask it,
    and fail or wait while it is down. Leases outlive the agent: it can be ended, killed and
    upgraded at any time.
    """
    need_extra("agent")
    from alignup.host.agent.agent import run_agent
    from alignup.host.leases.file import LeaseFile

    file = LeaseFile(state, complain)
    if yes and not repair:
        raise click.UsageError("--yes needs --repair")
    if as_json and not (repair or hand_back):
        raise click.UsageError(
            "--json needs --repair or --hand-back; the log has --log-format json"
        )

    if repair:
        repair_journal(file, writes=yes, as_json=as_json)
        return 0
    if hand_back:
        give_back(file, as_json=as_json)
        return 0

    options = serving.options(version)
    start_logging(logs.log_format, logs.log_level)
    machine = site.load(all_resources=True, tell=logging.getLogger(__name__).warning)
    return run_agent(file, machine, options)


def default_socket() -> Path:
    """Return where an agent serves: root's for the system, others' for themselves."""
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    if os.geteuid() == 0:
        from alignup.host.leases.source import SYSTEM_SOCKET

        return SYSTEM_SOCKET
    if not runtime.startswith("/"):
        raise InputError("give --socket: XDG_RUNTIME_DIR is not set")
    return Path(runtime) / "alignup" / "agent.sock"


def limits_of(texts: tuple[str, ...]) -> Limits:
    """Return the limits that texts such as `cpus=4` or `nvidia.com/gpu=1` say.

    Raises:
        InputError: one of them says none.
    """
    from alignup.host.leases.request import parse_memory
    from alignup.host.leases.users import Limits
    from alignup.kubernetes.quantity import LARGEST
    from alignup.text.digits import read_number

    amounts: dict[str, int] = {}
    for text in texts:
        name, _, amount = text.rpartition("=")
        is_number = amount.isascii() and amount.isdigit()
        if not name or not (name == "memory" or is_number):
            raise InputError.at("--limit", "WHAT=N such as cpus=4 or memory=8Gi", text)

        if name == "memory":
            amounts[name] = parse_memory(amount, "--limit memory")
        else:
            amounts[name] = read_number(amount, f"--limit {name}", LARGEST)

    fields = {
        name: amounts.pop(name)
        for name in ("cpus", "memory", "leases", "waiting")
        if name in amounts
    }
    for name in amounts:
        if "/" not in name:
            expected = "cpus, memory, leases, waiting or a resource such as nvidia.com/gpu"
            raise InputError.at("--limit", expected, name)

    return Limits(**fields, devices=amounts)


def repair_journal(file: LeaseFile, *, writes: bool, as_json: bool) -> None:
    """Show the leases of an agent that does not run, and why there may be others.

    If it `writes`, it forgets those others.
    """
    from alignup.cli.ps import lease_dict, show_leases
    from alignup.cli.terminal import print_json
    from alignup.host.agent.ownership import Ownership
    from alignup.host.leases.agent_messages import KnownLease
    from alignup.host.leases.evidence import lease_liveness

    with closing(Ownership(file)) as ownership:
        journal = ownership.repair(complain, writes=writes)

    leases = [KnownLease(lease, lease_liveness(lease).value) for lease in journal.table.leases]
    if as_json:
        print_json(
            {
                "leases": [lease_dict(listed.lease, listed.state) for listed in leases],
                "lost": journal.lost or None,
                "repaired": bool(journal.lost and writes),
            }
        )
        return

    show_leases(leases)
    if not journal.lost:
        click.echo("all leases are known: there is nothing to repair")
    elif writes:
        click.echo("the agent keeps these leases; everything else is free")
    else:
        click.echo(
            f"{journal.lost}. No running process shows this lease: its process has ended, or does "
            "not show it. With --yes the agent keeps only these leases, and treats everything else "
            "as free."
        )


def give_back(file: LeaseFile, *, as_json: bool) -> None:
    """Put the leases of an agent that does not run back into its file."""
    from alignup.cli.terminal import print_json
    from alignup.host.agent.ownership import Ownership
    from alignup.host.leases.file import default_state
    from alignup.host.trusted_files import remove
    from alignup.text.counting import counted

    with closing(Ownership(file)) as ownership:
        socket = file.agent()
        table = ownership.hand_back(complain)
        if socket:
            remove(Path(socket))
        else:
            complain(
                f"no agent kept the leases of {file.path}; --state names the file of another one"
            )

    count = len(table.leases)
    if as_json:
        print_json({"leases": count, "file": str(file.path)})
    else:
        verb = "is" if count == 1 else "are"
        click.echo(f"{counted(count, 'lease')} {verb} in {file.path}")

    if table.leases and file.path != default_state():
        complain(
            f"commands without --state {file.path} do not see these leases, and may grant the "
            "same again"
        )


# ---- the log, of the agent and of the other programs that run on


class JSONFormatter(logging.Formatter):
    """Writes a record as a JSON object.

    It has time (UTC), level, logger, message, and what came with the record.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line: dict[str, object] = {
            "time": f"{moment}.{int(record.msecs):03}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line.update({name: getattr(record, name) for name in _EXTRAS if hasattr(record, name)})
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)

        return msgspec.json.encode(line, enc_hook=str).decode()


class JournalFormatter(logging.Formatter):
    """Writes before each line of another formatter its priority.

    The priority is written as systemd reads it (sd-daemon(3)).

    Args:
        inner: the other formatter.
    """

    def __init__(self, inner: logging.Formatter) -> None:
        super().__init__()
        self._inner = inner

    def format(self, record: logging.LogRecord) -> str:
        """Return the lines of a record."""
        priority = next(number for level, number in _PRIORITIES if record.levelno >= level)
        return "\n".join(f"<{priority}>{line}" for line in self._inner.format(record).split("\n"))


class _WithoutTraceback(logging.Filter):
    """Puts what a client did wrong, or the system refuses, into one line.

    The same line is not logged many times a second. The HTTP server and the event loop log it with
    a traceback of their own code, the latter whenever it cannot accept a connection.
    """

    _last = "", 0.0

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if error is None:
            return True

        is_of_server = record.name == "aiohttp.server"
        is_of_event_loop = record.name == "asyncio" and isinstance(error, OSError)
        if not (is_of_server or is_of_event_loop):
            return True

        message = f"{record.getMessage()}: {typed_text_of(error)}"
        record.msg = sentence_of(message)
        record.args = ()
        record.exc_info = None

        last_message, last_time = self._last
        now = time.monotonic()
        self._last = message, now
        return message != last_message or now - last_time > _SILENCE


def start_logging(form: str, level: str) -> Callable[[str], None]:
    """Let the package and its HTTP server log to standard error, and return what logs a warning.

    Warnings of Python are logged, too. This is also where a program that runs on gets as many
    descriptors as it may have.

    Args:
        form: `text` or `json`.
        level: the least that is logged: `debug`, `info`, `warning` or `error`.

    Raises:
        InputError: it may have too few to serve anybody.
    """
    _, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard_limit < _DESCRIPTORS:
        raise InputError.at("ulimit -n", f"at least {_DESCRIPTORS} open files", hard_limit)

    resource.setrlimit(resource.RLIMIT_NOFILE, (hard_limit, hard_limit))

    formatter = logging.Formatter("%(levelname)s %(message)s")
    if form == "json":
        formatter = JSONFormatter()
    if _is_journal():
        formatter = JournalFormatter(formatter)

    handler = logging.StreamHandler()
    handler.addFilter(_WithoutTraceback())
    handler.setFormatter(formatter)
    for name in ("alignup", "aiohttp", "asyncio"):
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.setLevel(level.upper() if name == "alignup" else logging.WARNING)
        logger.propagate = False

    def tell(sentence: str) -> None:
        _LOG.warning("%s", sentence_of(sentence))

    # not again while it is remembered: some come with each look at a machine
    say = lru_cache(64)(tell)
    warnings.showwarning = lambda message, *_args, **_more: say(str(message))
    return tell


def _is_journal() -> bool:
    """Return whether standard error is read by systemd's journal, which says which file that is."""
    try:
        file = os.fstat(sys.stderr.fileno())
    except (OSError, AttributeError, ValueError):
        return False  # closed, or none at all
    return os.environ.get("JOURNAL_STREAM", "") == f"{file.st_dev}:{file.st_ino}"
