//! User-visible reasons, spelled exactly as upstream spells them.
//!
//! One constant each; grouped by where users meet them.

/// `state.waiting.reason` of a container (LC-062).
pub mod waiting {
    pub const CONTAINER_CREATING: &str = "ContainerCreating";
    pub const POD_INITIALIZING: &str = "PodInitializing";
    pub const CRASH_LOOP_BACK_OFF: &str = "CrashLoopBackOff";
    pub const ERR_IMAGE_PULL: &str = "ErrImagePull";
    pub const IMAGE_PULL_BACK_OFF: &str = "ImagePullBackOff";
    pub const ERR_IMAGE_NEVER_PULL: &str = "ErrImageNeverPull";
    pub const INVALID_IMAGE_NAME: &str = "InvalidImageName";
    pub const IMAGE_INSPECT_ERROR: &str = "ImageInspectError";
    pub const REGISTRY_UNAVAILABLE: &str = "RegistryUnavailable";
    pub const SIGNATURE_VALIDATION_FAILED: &str = "SignatureValidationFailed";
    pub const CREATE_CONTAINER_CONFIG_ERROR: &str = "CreateContainerConfigError";
    pub const PRE_CREATE_HOOK_ERROR: &str = "PreCreateHookError";
    pub const CREATE_CONTAINER_ERROR: &str = "CreateContainerError";
    pub const PRE_START_HOOK_ERROR: &str = "PreStartHookError";
    pub const RUN_CONTAINER_ERROR: &str = "RunContainerError";
    pub const POST_START_HOOK_ERROR: &str = "PostStartHookError";
    pub const RESTARTING_ALL_CONTAINERS: &str = "RestartingAllContainers";
}

/// `state.terminated.reason` of a container (LC-063).
pub mod terminated {
    pub const COMPLETED: &str = "Completed";
    pub const ERROR: &str = "Error";
    pub const OOM_KILLED: &str = "OOMKilled";
    pub const START_ERROR: &str = "StartError";
    pub const CONTAINER_CANNOT_RUN: &str = "ContainerCannotRun";
    pub const UNKNOWN: &str = "Unknown";
    pub const CONTAINER_STATUS_UNKNOWN: &str = "ContainerStatusUnknown";
    pub const RESTARTING_ALL_CONTAINERS: &str = "RestartingAllContainers";
}

/// `status.phase` of a pod.
pub mod phase {
    pub const PENDING: &str = "Pending";
    pub const RUNNING: &str = "Running";
    pub const SUCCEEDED: &str = "Succeeded";
    pub const FAILED: &str = "Failed";
    pub const UNKNOWN: &str = "Unknown";
}

/// `status.conditions[].type` of a pod, and the reasons they carry.
pub mod condition {
    pub const POD_SCHEDULED: &str = "PodScheduled";
    pub const POD_READY_TO_START_CONTAINERS: &str = "PodReadyToStartContainers";
    pub const INITIALIZED: &str = "Initialized";
    pub const CONTAINERS_READY: &str = "ContainersReady";
    pub const READY: &str = "Ready";
    pub const DISRUPTION_TARGET: &str = "DisruptionTarget";
    pub const POD_RESIZE_PENDING: &str = "PodResizePending";
    pub const POD_RESIZE_IN_PROGRESS: &str = "PodResizeInProgress";
    pub const ALL_CONTAINERS_RESTARTING: &str = "AllContainersRestarting";
    /// The same under the name of the v1.35 documents (LC-115).
    pub const POD_RESTART_IN_PLACE: &str = "PodRestartInPlace";
    pub const RESTART_ALL_CONTAINERS_STARTED: &str = "RestartAllContainersStarted";

    pub const SCHEDULING_GATED: &str = "SchedulingGated";
    pub const SCHEDULING_GATED_MESSAGE: &str = "Scheduling is blocked due to non-empty scheduling gates";
    pub const UNSCHEDULABLE: &str = "Unschedulable";
    pub const SCHEDULER_ERROR: &str = "SchedulerError";
    pub const CONTAINERS_NOT_READY: &str = "ContainersNotReady";
    pub const CONTAINERS_NOT_INITIALIZED: &str = "ContainersNotInitialized";
    pub const READINESS_GATES_NOT_READY: &str = "ReadinessGatesNotReady";
    pub const POD_COMPLETED: &str = "PodCompleted";
    pub const POD_FAILED: &str = "PodFailed";
    pub const UNKNOWN_CONTAINER_STATUSES: &str = "UnknownContainerStatuses";

    pub const PREEMPTION_BY_SCHEDULER: &str = "PreemptionByScheduler";
    pub const DELETION_BY_TAINT_MANAGER: &str = "DeletionByTaintManager";
    pub const EVICTION_BY_EVICTION_API: &str = "EvictionByEvictionAPI";
    pub const DELETION_BY_POD_GC: &str = "DeletionByPodGC";
    pub const TERMINATION_BY_KUBELET: &str = "TerminationByKubelet";
}

/// `status.reason` of a pod.
pub mod pod {
    pub const EVICTED: &str = "Evicted";
    pub const NODE_LOST: &str = "NodeLost";
    pub const NODE_AFFINITY: &str = "NodeAffinity";
    pub const DEADLINE_EXCEEDED: &str = "DeadlineExceeded";
    pub const TERMINATED: &str = "Terminated";
    pub const UNEXPECTED_ADMISSION_ERROR: &str = "UnexpectedAdmissionError";
    pub const PREEMPTING: &str = "Preempting";
    pub const POD_LEVEL_RESOURCES_NOT_SUPPORTED: &str = "PodLevelResourcesNotSupported";
}

/// `reason` of Events (LC-305).
pub mod event {
    pub const SCHEDULED: &str = "Scheduled";
    pub const FAILED_SCHEDULING: &str = "FailedScheduling";
    pub const PREEMPTED: &str = "Preempted";
    pub const TAINT_MANAGER_EVICTION: &str = "TaintManagerEviction";
    pub const NODE_NOT_READY: &str = "NodeNotReady";
    pub const SUCCESSFUL_CREATE: &str = "SuccessfulCreate";
    pub const FAILED_CREATE: &str = "FailedCreate";
    pub const SUCCESSFUL_DELETE: &str = "SuccessfulDelete";
    pub const FAILED_DELETE: &str = "FailedDelete";
    pub const PULLING: &str = "Pulling";
    pub const PULLED: &str = "Pulled";
    pub const FAILED: &str = "Failed";
    pub const BACK_OFF: &str = "BackOff";
    pub const INSPECT_FAILED: &str = "InspectFailed";
    pub const ERR_IMAGE_NEVER_PULL: &str = "ErrImageNeverPull";
    pub const FAILED_TO_RETRIEVE_IMAGE_PULL_SECRET: &str = "FailedToRetrieveImagePullSecret";
    pub const CREATED: &str = "Created";
    pub const STARTED: &str = "Started";
    pub const KILLING: &str = "Killing";
    pub const UNHEALTHY: &str = "Unhealthy";
    pub const PROBE_WARNING: &str = "ProbeWarning";
    pub const FAILED_POST_START_HOOK: &str = "FailedPostStartHook";
    pub const FAILED_PRE_STOP_HOOK: &str = "FailedPreStopHook";
    pub const LIFECYCLE_HTTP_FALLBACK: &str = "LifecycleHTTPFallback";
    pub const SANDBOX_CHANGED: &str = "SandboxChanged";
    pub const FAILED_CREATE_POD_SANDBOX: &str = "FailedCreatePodSandBox";
    pub const FAILED_POD_SANDBOX_STATUS: &str = "FailedPodSandBoxStatus";
    pub const NETWORK_NOT_READY: &str = "NetworkNotReady";
    pub const FAILED_CREATE_POD_CONTAINER: &str = "FailedCreatePodContainer";
    pub const FAILED_MOUNT: &str = "FailedMount";
    pub const FAILED_KILL_POD: &str = "FailedKillPod";
    pub const FAILED_SYNC: &str = "FailedSync";
    pub const EXCEEDED_GRACE_PERIOD: &str = "ExceededGracePeriod";
    pub const DEADLINE_EXCEEDED: &str = "DeadlineExceeded";
    pub const EVICTED: &str = "Evicted";
    pub const PREEMPTING: &str = "Preempting";
    pub const FAILED_VALIDATION: &str = "FailedValidation";
    pub const RESIZE_STARTED: &str = "ResizeStarted";
    pub const RESIZE_COMPLETED: &str = "ResizeCompleted";
    pub const RESIZE_DEFERRED: &str = "ResizeDeferred";
    pub const RESIZE_INFEASIBLE: &str = "ResizeInfeasible";
    pub const RESIZE_ERROR: &str = "ResizeError";
    pub const SYSTEM_OOM: &str = "SystemOOM";
}
