#!/bin/sh
# Makes the secrets of compose.yaml in the folder secrets/ beside it. A secret that exists stays as it is.
# Other users cannot enter the folder; the files in it can be read by the users of the containers, who are not the user of this machine.
set -eu
cd "$(dirname "$0")"
mkdir -p secrets data
chmod 700 secrets
for name in catalog-password page-token grafana-password; do
  if [ ! -e "secrets/$name" ]; then
    (umask 077 && od -An -tx1 -N24 /dev/urandom | tr -d ' \n' > "secrets/$name.new")
    chmod 444 "secrets/$name.new"
    mv "secrets/$name.new" "secrets/$name"
    echo "made secrets/$name"
  fi
done
