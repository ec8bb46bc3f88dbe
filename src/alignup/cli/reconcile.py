"""`alignup reconcile`: deletes pods that ended in TopologyAffinityError, slowly, so that they are replaced."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from alignup.cli.failures import complain, need_extra
from alignup.cli.options import kubeconfig_option

if TYPE_CHECKING:
    from alignup.scheduler.reconcile import Rules


@click.command(name="reconcile")
@kubeconfig_option
@click.option(
    "--reason",
    "reasons",
    multiple=True,
    default=("TopologyAffinityError",),
    show_default=True,
    metavar="REASON",
    help="The status.reason of pods to delete; may be given several times.",
)
@click.option(
    "--backoff",
    default=10.0,
    show_default=True,
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="Wait so long before the first pod of a controller is deleted, and twice as long each further time.",
)
@click.option(
    "--longest",
    default=300.0,
    show_default=True,
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="Wait no longer.",
)
@click.option(
    "--limit",
    default=20,
    show_default=True,
    type=click.IntRange(min=1),
    help="Delete no more pods of one controller within an hour.",
)
@click.option("--dry-run", is_flag=True, help="Delete nothing; say what would be deleted.")
def command(
    kubeconfig: str | None, reasons: tuple[str, ...], backoff: float, longest: float, limit: int, dry_run: bool
) -> None:
    """Delete pods that their nodes rejected, if a controller owns them: it makes others, which may fit elsewhere.

    Pods without a controller stay. Runs until SIGTERM.
    """
    need_extra("cluster")
    from alignup.scheduler.reconcile import Rules

    rules = Rules(frozenset(reasons), backoff, longest, limit)
    asyncio.run(reconcile(kubeconfig, rules, dry_run))


async def reconcile(kubeconfig: str | None, rules: Rules, dry_run: bool) -> None:
    """Delete pods until told to end."""
    from alignup.scheduler.api_client import Api
    from alignup.scheduler.reconcile import Reconciler
    from alignup.scheduler.serving import run_until_told

    api = await Api.connect(kubeconfig)
    try:
        reconciler = Reconciler(api, rules, say=click.echo, complain=complain, dry=dry_run)
        await run_until_told(reconciler.run(), lambda: None)
    finally:
        await api.close()
