#!/usr/bin/env bash
# Trains the job ctr on a TPU slice v5p:2x2x2 (v5p-16: 2 machines of 4 chips), and deletes the slice after it.
# Written by `headrace train --launcher tpu-vm`. The same script goes on from the last commit in gs://bucket/it's.
# It needs gcloud, openssl, and the catalog's URL in $HEADRACE_CATALOG_URL.
set -euo pipefail
: "${HEADRACE_CATALOG_URL:?must be the URL of the catalog, which the first machine of the slice reaches}"
slice=(ctr --zone=us-east5-a --project=my-project)

state="$(gcloud compute tpus tpu-vm describe "${slice[@]}" --format='value(state)' 2>/dev/null || true)"
if [ "$state" = PREEMPTED ] || [ "$state" = TERMINATED ]; then
  gcloud compute tpus tpu-vm delete "${slice[@]}" --quiet
  state=""
fi
if [ -z "$state" ]; then
  gcloud compute tpus tpu-vm create "${slice[@]}" --type=v5p --topology=2x2x2 --version=v2-alpha-tpuv5 --scopes=cloud-platform --spot
fi
controller="$(gcloud compute tpus tpu-vm describe "${slice[@]}" --format='value(networkEndpoints[0].ipAddress)')"

# The files of the job, for each machine.
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
mkdir -m 700 "$folder/headrace-job"
openssl rand -hex 32 >"$folder/headrace-job/token"
printf 'HEADRACE_CATALOG_URL=%s\n' "$HEADRACE_CATALOG_URL" >"$folder/headrace-job/catalog.env"
cat >"$folder/headrace-job/options.json" <<'END_OF_OPTIONS'
{
  "batch_rows": 4096
}
END_OF_OPTIONS
cat >"$folder/headrace-job/machine.sh" <<'END_OF_MACHINE'
set -euo pipefail
controller="$1"
ip="$(hostname -I | cut -d ' ' -f 1)"
index="$(curl --silent --fail --header 'Metadata-Flavor: Google' \
  http://metadata.google.internal/computeMetadata/v1/instance/attributes/agent-worker-number)"
sudo gcloud auth configure-docker --quiet europe-west4-docker.pkg.dev
old="$(sudo docker ps --all --quiet --filter name=headrace-)"
if [ -n "$old" ]; then
  xargs sudo docker rm --force <<<"$old"
fi
if [ "$index" = 0 ]; then
  sudo docker run \
    --detach \
    --name headrace-controller \
    --restart on-failure \
    --net host \
    --user root \
    --env-file "$HOME/headrace-job/catalog.env" \
    --volume headrace-controller:/var/lib/headrace \
    --volume "$HOME/headrace-job/token:/etc/headrace/job/token:ro" \
    --volume "$HOME/headrace-job/options.json:/etc/headrace/options/options.json:ro" europe-west4-docker.pkg.dev/project/headrace/headrace-controller:1.2.3 train ctr \
    --version 3 \
    --epoch-secs 600.0 \
    --home gs://bucket/home \
    --run-dir 'gs://bucket/it'"'"'s' \
    --config /etc/headrace/options/options.json \
    --hosts 2 \
    --readers 3 \
    --job-dir /var/lib/headrace/job \
    --launcher remote \
    --listen "$ip:7410" \
    --token-file /etc/headrace/job/token
fi
for ((reader = index; reader < 3; reader += 2)); do
  port=$((7420 + reader / 2))
  sudo docker run \
    --detach \
    --name "headrace-reader-$reader" \
    --restart on-failure \
    --net host \
    --user root \
    --env-file "$HOME/headrace-job/catalog.env" \
    --volume "$HOME/headrace-job/token:/etc/headrace/job/token:ro" \
    --volume "$HOME/headrace-job/options.json:/etc/headrace/options/options.json:ro" europe-west4-docker.pkg.dev/project/headrace/headrace-reader:1.2.3 role reader /var/lib/headrace/role \
    --name "r$reader" \
    --address "$ip:$port" \
    --controller "$controller:7410" \
    --token-file /etc/headrace/job/token
done
sudo docker run \
    --detach \
    --name headrace-host \
    --restart on-failure \
    --net host \
    --user root \
    --privileged \
    --stop-timeout 45 \
    --volume "$HOME/headrace-job/token:/etc/headrace/job/token:ro" \
    --volume "$HOME/headrace-job/options.json:/etc/headrace/options/options.json:ro" europe-west4-docker.pkg.dev/project/headrace/headrace-host:1.2.3 role host /var/lib/headrace/role \
    --name "h$index" \
    --address "$ip:7412" \
    --controller "$controller:7410" \
    --token-file /etc/headrace/job/token \
    --grace-secs 30 \
    --notice-metadata http://metadata.google.internal
END_OF_MACHINE
gcloud compute tpus tpu-vm ssh "${slice[@]}" --worker=all --command='rm -rf headrace-job'
gcloud compute tpus tpu-vm scp --recurse "$folder/headrace-job" "${slice[0]}:" "${slice[@]:1}" --worker=all
gcloud compute tpus tpu-vm ssh "${slice[@]}" --worker=all --command="bash headrace-job/machine.sh $controller"

# The controller ends with the job.
gcloud compute tpus tpu-vm ssh "${slice[@]}" --worker=0 --command='sudo docker logs --follow headrace-controller' || true
status="$(gcloud compute tpus tpu-vm ssh "${slice[@]}" --worker=0 --command='sudo docker wait headrace-controller')"
if [ "$status" != 0 ]; then
  echo "The job ended with status $status. The slice is still there: gcloud compute tpus tpu-vm delete ${slice[*]}" >&2
  exit "$status"
fi
gcloud compute tpus tpu-vm delete "${slice[@]}" --quiet
