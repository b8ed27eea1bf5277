# The hosts of a training job. From the root of the repository:
#   docker build --file docker/host.Dockerfile --build-arg DEVICE=tpu --tag REPOSITORY/headrace-host:TAG .
# DEVICE is cpu, gpu or tpu. TPU hosts run as root, who has the TPU's devices.
FROM python:3.12-slim-bookworm
ARG DEVICE=cpu
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_NO_CACHE_DIR=1 \
    PYTHONUNBUFFERED=1 \
    NUMBA_CACHE_DIR=/var/cache/headrace
RUN install --directory /var/cache/headrace /var/lib/headrace
WORKDIR /opt/headrace
COPY . .
RUN python -m pip install --constraint requirements.txt ".[gcs,metrics,tensorflow]"
# TensorFlow for TPUs takes the place of that for CPUs. Its own requirements would bring a libtpu that it does not load with.
RUN case "$DEVICE" in \
      cpu) ;; \
      gpu) python -m pip install --constraint requirements.txt "tensorflow[and-cuda]" ;; \
      tpu) python -m pip uninstall --yes tensorflow \
        && python -m pip install --no-deps tensorflow-tpu==2.20.0 libtpu==0.0.20 ;; \
      *) echo "DEVICE must be cpu, gpu or tpu, got $DEVICE" >&2; exit 2 ;; \
    esac
WORKDIR /var/lib/headrace
ENTRYPOINT ["headrace"]
