"""`alignup agent`: places work on this machine for all its users, with device plugins, and never forgets."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from alignup.cli.failures import complain, need_extra
from alignup.cli.inputs import read_mapping
from alignup.cli.options import (
    device_resource_option,
    devices_option,
    kubelet_version_option,
    machine_option,
    state_option,
)
from alignup.errors import InputError

if TYPE_CHECKING:
    from alignup.agent.agent import AgentOptions
    from alignup.kubernetes.versions import KubeletVersion
    from alignup.leases.file import LeaseFile
    from alignup.leases.ledger import Limits

_PATH = click.Path(path_type=Path)


@click.command(name="agent", epilog="Exit status: 0 ended as told to; 1 the disk failed; 2 bad usage or bad input.")
@click.option(
    "--socket",
    type=_PATH,
    help="Where commands ask for leases. [default: alignup/agent.sock in /run, or in $XDG_RUNTIME_DIR]",
)
@click.option("--group", default="", metavar="GROUP", help="The group whose members may ask.")
@click.option(
    "--device-plugins",
    type=_PATH,
    metavar="DIR",
    help="The folder where device plugins register, such as /var/lib/kubelet/device-plugins where no kubelet runs. "
    "[default: device-plugins beside the socket]",
)
@click.option("--no-device-plugins", is_flag=True, help="Serve no device plugins.")
@click.option("--podresources", type=_PATH, metavar="PATH", help="Serve PodResources (v1) on this socket.")
@click.option(
    "--metrics",
    default="",
    metavar="[ADDRESS:]PORT|PATH",
    help="Serve metrics for Prometheus; a port alone is on loopback.",
)
@click.option(
    "--limit",
    "limits",
    multiple=True,
    metavar="WHAT=N",
    help="The most that each user but root may hold: cpus, memory, leases, waiting, or a resource of devices.",
)
@click.option("--no-fsync", is_flag=True, help="Let the kernel write leases to the disk when it likes.")
@click.option(
    "--cgroup",
    type=_PATH,
    metavar="DIR",
    help="Put each command into a cgroup (v2) of its own below this one. [default: below that which it is in already, "
    "where the agent may]",
)
@click.option("--no-cgroups", is_flag=True, help="Put commands into no cgroups.")
@click.option("--json-log", is_flag=True, help="Log one JSON object a line.")
@click.option("--hand-back", is_flag=True, help="Put the leases back into their file, and end.")
@click.option(
    "--repair",
    is_flag=True,
    help="Show what is known of the leases of a damaged journal, and what would be done about it, and end.",
)
@click.option("--yes", is_flag=True, help="With --repair: do it.")
@machine_option
@device_resource_option
@devices_option
@kubelet_version_option
@state_option
@click.pass_context
def command(
    ctx: click.Context,
    /,
    *,
    json_log: bool,
    hand_back: bool,
    repair: bool,
    yes: bool,
    machine: str,
    selectors: tuple[str, ...],
    inventory: str | None,
    state: Path | None,
    **serving: Any,
) -> None:
    """Place work on this machine for all its users.

    `alignup run`, `lease`, `ps`, `release` and `split` ask the agent once it has taken over the file of leases, and
    wait for it or fail while it is down. Leases outlive the agent: it can be ended, killed and upgraded at any time.
    """
    need_extra("agent")
    from alignup.agent.agent import run_agent
    from alignup.agent.logs import start_logging
    from alignup.leases.file import LeaseFile

    file = LeaseFile(state, complain)
    if yes and not repair:
        raise click.UsageError("--yes needs --repair")
    if repair:
        repair_journal(file, writes=yes)
        return
    if hand_back:
        give_back(file)
        return
    options = agent_options(**serving)
    start_logging(as_json=json_log)
    from alignup.leases.local_machine import load_site

    given = read_mapping(inventory) if inventory else None
    tell = logging.getLogger(__name__).warning
    site = load_site(machine, selectors=selectors, devices=given, all_resources=True, tell=tell)
    ctx.exit(run_agent(file, site, options))


def agent_options(
    *,
    socket: Path | None,
    group: str,
    device_plugins: Path | None,
    no_device_plugins: bool,
    podresources: Path | None,
    metrics: str,
    limits: tuple[str, ...],
    no_fsync: bool,
    cgroup: Path | None,
    no_cgroups: bool,
    version: KubeletVersion | None,
) -> AgentOptions:
    """Return how the agent is to run, as the options of the command line say.

    Raises:
        InputError: one of the limits is none, or nothing says where the socket is to be.
        click.UsageError: options exclude each other.
    """
    from alignup.agent.agent import AgentOptions
    from alignup.trusted_files import check_text

    if no_cgroups and cgroup is not None:
        raise click.UsageError("--cgroup and --no-cgroups exclude each other")
    path = (socket or default_socket()).absolute()
    if cgroup is not None:
        check_text(cgroup, "--cgroup")
    return AgentOptions(
        path,
        group,
        limits_of(limits),
        None if no_device_plugins else device_plugins or path.parent / "device-plugins",
        podresources,
        metrics,
        durable=not no_fsync,
        version=version,
        cgroups=not no_cgroups,
        cgroup=cgroup and cgroup.absolute(),
    )


def default_socket() -> Path:
    """Return where an agent serves: root's for the system, others' for themselves."""
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    if os.geteuid() == 0:
        return Path("/run/alignup/agent.sock")
    if not runtime.startswith("/"):
        raise InputError("give --socket: XDG_RUNTIME_DIR is not set")
    return Path(runtime) / "alignup" / "agent.sock"


def limits_of(texts: tuple[str, ...]) -> Limits:
    """Return the limits that texts such as `cpus=4` or `nvidia.com/gpu=1` say.

    Raises:
        InputError: one of them says none.
    """
    from alignup.leases.ledger import Limits
    from alignup.leases.request import parse_memory

    amounts: dict[str, int] = {}
    for text in texts:
        what, found, amount = text.rpartition("=")
        is_number = amount.isascii() and amount.isdigit()
        if not found or not what or not (is_number or what == "memory"):
            raise InputError.at("--limit", "WHAT=N such as cpus=4 or memory=8Gi", text)
        amounts[what] = parse_memory(amount, "--limit memory") if what == "memory" else int(amount)
    known = {name: amounts.pop(name) for name in ("cpus", "memory", "leases", "waiting") if name in amounts}
    strange = [name for name in amounts if "/" not in name]
    if strange:
        raise InputError.at("--limit", "cpus, memory, leases, waiting or a resource such as nvidia.com/gpu", strange[0])
    return Limits(**known, devices=amounts)


def repair_journal(file: LeaseFile, *, writes: bool) -> None:
    """Show the leases of an agent that does not run, and why there may be others; if it `writes`, forget these."""
    from alignup.agent.ownership import Ownership
    from alignup.cli.ps import show_leases
    from alignup.leases.evidence import lease_liveness
    from alignup.leases.grant import KnownLease

    ownership = Ownership(file)
    try:
        known = ownership.repair(complain, writes=writes)
    finally:
        ownership.close()
    show_leases([KnownLease(lease, lease_liveness(lease).value) for lease in known.table.leases])
    if not known.lost:
        click.echo("all leases are known: there is nothing to repair")
    elif writes:
        click.echo("the agent goes on with these leases, and gives everything else")
    else:
        click.echo(
            f"{known.lost}. Whoever has it shows nothing of it, or runs no longer. "
            "With --yes the agent goes on with these leases, and gives everything else."
        )


def give_back(file: LeaseFile) -> None:
    """Put the leases of an agent that does not run back into its file."""
    from alignup.agent.ownership import Ownership
    from alignup.trusted_files import remove

    ownership = Ownership(file)
    try:
        socket = file.agent()
        table = ownership.hand_back(complain)
        if socket:
            remove(Path(socket))
    finally:
        ownership.close()
    click.echo(f"{len(table.leases)} leases are in {file.path}")
