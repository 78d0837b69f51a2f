#!/bin/bash
# Installs a build into a temporary prefix, builds the consumer against it, and runs it alone and
# under the installed launcher: test/consumer/run.sh BUILD_FOLDER
set -euo pipefail

build=$1
source=$(cd "$(dirname "$0")" && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

cmake --install "$build" --prefix "$folder/prefix" >"$folder/install.log" || {
  cat "$folder/install.log" >&2
  exit 1
}
cmake -S "$source" -B "$folder/build" -G Ninja -DCMAKE_BUILD_TYPE=Release \
  -DCMAKE_PREFIX_PATH="$folder/prefix"
cmake --build "$folder/build"

echo "--- alone"
env -u MUSTER_AGENT_DIRECTORY timeout 60 "$folder/build/consumer" | tee "$folder/alone"
grep -q '^size 1, step 3, weight 1$' "$folder/alone"

echo "--- two workers under the installed horovodrun"
timeout 60 "$folder/prefix/bin/horovodrun" -np 2 -H localhost:2 "$folder/build/consumer" |
  tee "$folder/two"
[[ $(grep -c 'size 2, step 3, weight 8$' "$folder/two") -eq 2 ]]
