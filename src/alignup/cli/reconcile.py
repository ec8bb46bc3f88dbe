"""`alignup reconcile`: deletes pods that ended in TopologyAffinityError and that a controller owns, slowly."""

from __future__ import annotations

import click

from alignup.cli import options
from alignup.cli.failures import need_extra


@options.subcommand("reconcile")
def command(
    *,
    kubeconfig: str | None = options.kubeconfig,
    reasons: tuple[str, ...] = options.value(
        "The status.reason of pods to delete; may be given several times.",
        "--reason",
        multiple=True,
        default=("TopologyAffinityError",),
        metavar="REASON",
    ),
    backoff: float = options.seconds(
        "How long to wait before the first pod of a controller is deleted; twice as long each further time.",
        default=10.0,
    ),
    longest: float = options.seconds("The longest wait before a pod is deleted.", default=300.0),
    limit: int = options.value(
        "Delete no more pods of one controller within an hour.", default=20, type=click.IntRange(min=1)
    ),
    no_events: bool = options.flag("Write no Events on rejected pods."),
    dry_run: bool = options.flag("Delete nothing; say what would be deleted."),
    logs: options.Logs = options.all_of(options.Logs),
) -> None:
    """Delete pods that nodes rejected, if a controller owns them: it replaced them, or does so after the deletion.

    Pods without a controller stay. It does not stop a ReplicaSet whose pods fit nowhere from making more of them: only
    the extender does. Runs until SIGTERM.
    """
    need_extra("cluster")
    from alignup.cli.agent import logged
    from alignup.control_plane.api_server.api_client import Api, with_api
    from alignup.control_plane.scheduler.reconcile import Reconciler, Rules
    from alignup.control_plane.serving import run_until_told

    rules = Rules(frozenset(reasons), backoff, longest, limit)

    async def reconcile(api: Api) -> None:
        reconciler = Reconciler(api, rules, say=click.echo, dry=dry_run, writes_events=not (no_events or dry_run))
        await run_until_told(reconciler.run())

    with_api(kubeconfig, reconcile, complain=logged(logs.log_format, logs.log_level))
