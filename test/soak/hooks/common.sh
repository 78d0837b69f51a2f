# Sourced by the hooks of soak: $word is begin or end, $host the host that is meant, by the draw of
# muster chaos, $switch and $port its place at the network's switch.
set -eu
word=$1
# shellcheck disable=SC2086
set -- $SOAK_HOSTS
shift $((MUSTER_CHAOS_DRAW % $#))
host=$1
switch=${SOAK_PREFIX}switch
port=to-$host
