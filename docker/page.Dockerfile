# The pages of a warehouse in a browser. From the root of the repository:
#   docker build --file docker/page.Dockerfile --tag REPOSITORY/headrace-page:TAG .
# The root of its containers may be read-only: they write into /tmp, /var/cache/headrace and /var/lib/headrace alone.
FROM python:3.12-slim-bookworm AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_NO_CACHE_DIR=1
WORKDIR /opt/headrace
COPY . .
RUN python -m venv /opt/venv
ENV PATH=/opt/venv/bin:$PATH
RUN python -m pip install --constraint requirements.txt ".[gcs,postgres,ui]"

FROM python:3.12-slim-bookworm
ENV PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    NUMBA_CACHE_DIR=/var/cache/headrace \
    PATH=/opt/venv/bin:$PATH
RUN groupadd --gid 1000 headrace \
 && useradd --uid 1000 --gid 1000 --create-home headrace \
 && install --directory --owner headrace --group headrace /var/cache/headrace /var/lib/headrace
COPY --from=build /opt/venv /opt/venv
USER 1000:1000
WORKDIR /var/lib/headrace
ENTRYPOINT ["headrace"]
