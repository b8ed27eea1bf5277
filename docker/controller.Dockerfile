# The controller of a training job. From the root of the repository:
#   docker build --file docker/controller.Dockerfile --tag REPOSITORY/headrace-controller:TAG .
FROM python:3.12-slim-bookworm
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_NO_CACHE_DIR=1 \
    PYTHONUNBUFFERED=1 \
    NUMBA_CACHE_DIR=/var/cache/headrace
RUN groupadd --gid 1000 headrace \
 && useradd --uid 1000 --gid 1000 --create-home headrace \
 && install --directory --owner headrace --group headrace /var/cache/headrace /var/lib/headrace
WORKDIR /opt/headrace
COPY . .
RUN python -m pip install --constraint requirements.txt ".[gcs,metrics,postgres,tensorflow]"
USER 1000:1000
WORKDIR /var/lib/headrace
ENTRYPOINT ["headrace"]
