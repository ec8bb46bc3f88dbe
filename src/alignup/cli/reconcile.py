"""`alignup reconcile`: deletes pods that ended in TopologyAffinityError, slowly, so that they are replaced."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from alignup.cli.failures import complain, need_extra
from alignup.cli.options import flag, kubeconfig_option, option, seconds_option, subcommand

if TYPE_CHECKING:
    from alignup.scheduler.reconcile import Rules


@subcommand("reconcile")
def command(
    *,
    kubeconfig: str | None = kubeconfig_option,
    reasons: tuple[str, ...] = option(
        "The status.reason of pods to delete; may be given several times.",
        "--reason",
        multiple=True,
        default=("TopologyAffinityError",),
        metavar="REASON",
    ),
    backoff: float = seconds_option(
        "Wait so long before the first pod of a controller is deleted, and twice as long each further time.",
        default=10.0,
    ),
    longest: float = seconds_option("Wait no longer.", default=300.0),
    limit: int = option(
        "Delete no more pods of one controller within an hour.", default=20, type=click.IntRange(min=1)
    ),
    dry_run: bool = flag("Delete nothing; say what would be deleted."),
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

    async with await Api.connect(kubeconfig) as api:
        reconciler = Reconciler(api, rules, say=click.echo, complain=complain, dry=dry_run)
        await run_until_told(reconciler.run(), lambda: None)
