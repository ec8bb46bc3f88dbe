"""Knows the names of the fields of a KubeletConfiguration, and says which of those given are none.

`alignup.kubernetes.kubelet_config` reads the few that matter; this module keeps a misspelt one from being passed
over in silence.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from alignup.errors import InputError, warn
from alignup.text.known_keys import unknown_keys

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["KUBELET_FIELDS", "check_fields"]

KUBELET_FIELDS: Final = frozenset(
    """
    apiVersion kind metadata
    address allowedUnsafeSysctls authentication authorization cgroupDriver cgroupRoot cgroupsPerQOS clusterDNS
    clusterDomain configMapAndSecretChangeDetectionStrategy containerLogMaxFiles containerLogMaxSize
    containerLogMaxWorkers containerLogMonitorInterval containerRuntimeEndpoint contentType cpuCFSQuota
    cpuCFSQuotaPeriod cpuManagerPolicy cpuManagerPolicyOptions cpuManagerReconcilePeriod crashLoopBackOff
    defaultPodSysctls enableContentionProfiling enableControllerAttachDetach enableDebugFlagsHandler
    enableDebuggingHandlers enableProfilingHandler enableServer enableSystemLogHandler enableSystemLogQuery
    enforceNodeAllocatable eventBurst eventRecordQPS evictionHard evictionMaxPodGracePeriod
    evictionMinimumReclaim evictionPressureTransitionPeriod evictionSoft evictionSoftGracePeriod failCgroupV1
    failSwapOn featureGates fileCheckFrequency hairpinMode healthzBindAddress healthzPort httpCheckFrequency
    imageGCHighThresholdPercent imageGCLowThresholdPercent imageMaximumGCAge imageMinimumGCAge
    imagePullCredentialsVerificationPolicy imageServiceEndpoint iptablesDropBit iptablesMasqueradeBit
    kernelMemcgNotification kubeAPIBurst kubeAPIQPS kubeReserved kubeReservedCgroup kubeletCgroups
    localStorageCapacityIsolation logging makeIPTablesUtilChains maxOpenFiles maxParallelImagePulls maxPods
    memoryManagerPolicy memoryReservationPolicy memorySwap memoryThrottlingFactor mergeDefaultEvictionSettings
    nodeLeaseDurationSeconds nodeStatusMaxImages nodeStatusReportFrequency nodeStatusUpdateFrequency oomScoreAdj
    podCIDR podLogsDir podPidsLimit podsPerCore port preloadedImagesVerificationAllowlist protectKernelDefaults
    providerID qosReserved readOnlyPort registerNode registerWithTaints registryBurst registryPullQPS
    reservedMemory reservedSystemCPUs resolvConf rotateCertificates runOnce runtimeRequestTimeout seccompDefault
    serializeImagePulls serverTLSBootstrap showHiddenMetricsForVersion shutdownGracePeriod
    shutdownGracePeriodByPodPriority shutdownGracePeriodCriticalPods singleProcessOOMKill staticPodPath
    staticPodURL staticPodURLHeader streamingConnectionIdleTimeout syncFrequency systemCgroups systemReserved
    systemReservedCgroup tlsCertFile tlsCipherSuites tlsCurvePreferences tlsMinVersion tlsPrivateKeyFile
    topologyManagerPolicy topologyManagerPolicyOptions topologyManagerScope tracing userNamespaces
    volumePluginDir volumeStatsAggPeriod
    """.split()  # noqa: SIM905  # so many names read better without quotes
)
"""The fields of `kubelet.config.k8s.io/v1beta1`."""


def check_fields(names: Iterable[object], known: Iterable[str], source: str = "") -> None:
    """Warn of names that are no fields of a KubeletConfiguration.

    Args:
        names: those that a configuration has.
        known: the fields that matter here.
        source: where it stands, such as a file's name.

    Raises:
        InputError: a field that matters is spelt as in Python.
    """
    spelt = {"".join(_snake(name)): name for name in known}
    where = f" in {source}" if source else ""
    for name, nearest in unknown_keys(names, KUBELET_FIELDS):
        if name in spelt:
            raise InputError.at(
                "the configuration", f"the field {spelt[name]}, as in a KubeletConfiguration", name
            )
        hint = f"; {nearest} is" if nearest else ""
        warn(f"{name!r} is no field of a KubeletConfiguration and ignored{where}{hint}")


def _snake(name: str) -> str:
    """Return a camel-case name as a Python name."""
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).replace(
        "c_p_us", "cpus"
    )
