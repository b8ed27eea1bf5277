"""Pipeline options that only the Java side of a runner declares.

A running job server lists them (:func:`fetch_server_options`). If Beam starts the server with the job, they are the names
below, of the released ``FlinkPipelineOptions`` and ``SparkPipelineOptions``; the tests compare both with a server.
"""

from __future__ import annotations

from collections.abc import Mapping

from transforms.errors import InputError

_ANY_JAVA_RUNNER = (
    "bundle_processor_cache_timeout", "default_environment_config", "default_environment_type", "enable_heap_dumps",
    "environment_expiration_millis", "files_to_stage", "gcs_endpoint", "jdk_add_open_modules", "load_balance_bundles",
    "retain_docker_containers", "sdk_harness_log_level_overrides", "semi_persist_dir", "stable_unique_names",
    "user_agent",
)  # fmt: skip
_FLINK = (
    "allow_non_restored_state", "attached_mode", "auto_balance_write_files_sharding_enabled",
    "auto_watermark_interval", "checkpoint_timeout_millis", "checkpointing_interval", "checkpointing_mode",
    "disable_metrics", "enable_stable_input_drain", "execution_mode_for_batch", "execution_retry_delay",
    "externalized_checkpoints_enabled", "fail_on_checkpointing_errors", "faster_copy",
    "file_input_split_max_size_m_b", "finish_bundle_before_checkpointing", "flink_conf_dir",
    "force_unaligned_checkpoint_enabled", "job_check_interval_in_secs", "latency_tracking_interval",
    "max_bundle_size", "max_bundle_time_mills", "min_pause_between_checkpoints", "num_concurrent_checkpoints",
    "number_of_execution_retries", "object_reuse", "operator_chaining", "re_iterable_group_by_key_result",
    "report_checkpoint_duration", "retain_externalized_checkpoints_on_cancellation", "savepoint_path",
    "shutdown_sources_after_idle_ms", "state_backend", "state_backend_factory", "state_backend_storage_path",
    "unaligned_checkpoint_enabled", "use_data_stream_for_batch",
)  # fmt: skip
_SPARK = (
    "batch_interval_millis", "bundle_size", "cache_disabled", "checkpoint_dir", "checkpoint_duration_millis",
    "enable_spark_metric_sinks", "max_records_per_batch", "min_read_time_millis",
    "prefer_group_by_key_to_handle_huge_values", "read_time_percentage", "spark_master", "storage_level",
    "use_active_spark_session",
)  # fmt: skip

#: Options of the runner's released job server in addition to Beam's Python options.
DECLARED: Mapping[str, tuple[str, ...]] = {
    "FlinkRunner": _ANY_JAVA_RUNNER + _FLINK,
    "SparkRunner": _ANY_JAVA_RUNNER + _SPARK,
}


def fetch_server_options(endpoint: str, timeout_secs: float = 30.0) -> frozenset[str]:
    """Request the names of the options that the job server at ``endpoint`` (host:port) accepts.

    Raises :class:`InputError` when no job server answers there within ``timeout_secs``.
    """
    import grpc
    from apache_beam.portability.api import beam_job_api_pb2, beam_job_api_pb2_grpc

    request = beam_job_api_pb2.DescribePipelineOptionsRequest()
    with grpc.insecure_channel(endpoint) as channel:
        service = beam_job_api_pb2_grpc.JobServiceStub(channel)
        try:
            answer = service.DescribePipelineOptions(request, timeout=timeout_secs, wait_for_ready=True)
        except grpc.RpcError as error:
            raise InputError("no Beam job server answers", where="--job_endpoint", value=endpoint,
                             allowed="host:port of a running job server",
                             next_step=f"start it, or see its log ({error.code().name})") from error  # fmt: skip
    return frozenset(option.name for option in answer.options)
