#!/usr/bin/env bash
# Starts docker-compose.yml from a fresh image, uses it from outside as a client
# would, kills the server, and checks that it comes back with its data.
#
# Without a container engine that runs here it prints a SKIP line and exits 0.
# It starts dockerd itself when that is installed, nobody runs it, and the
# caller is root; then it also stops it again.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

in_use() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# Away from the default ports, so that a node on this machine may stay up.
PUBLISH_HTTP=${PUBLISH_HTTP:-18848}
while in_use "$PUBLISH_HTTP" || in_use "$((PUBLISH_HTTP + 1000))"; do
  PUBLISH_HTTP=$((PUBLISH_HTTP + 7))
done
PUBLISH_GRPC=$((PUBLISH_HTTP + 1000))
export PUBLISH_HTTP PUBLISH_GRPC
export COMPOSE_PROJECT_NAME=rollcall-test ROLLCALL_IMAGE=rollcall:test
readonly api=http://127.0.0.1:$PUBLISH_HTTP/nacos/v1/ns/instance
readonly ready=http://127.0.0.1:$PUBLISH_HTTP/readyz

scratch=$(mktemp -d)
dockerd_pid=
forward_policy=
ip_forward=
compose_up=

skip() {
  printf '\nSKIP: test-compose: %s\n\n' "$*"
  exit 0
}

fail() {
  printf '\nFAIL: test-compose: %s\n' "$*" >&2
  exit 1
}

step() { printf -- '-- %s\n' "$*"; }

# poll SECONDS COMMAND... repeats the command until it succeeds.
poll() {
  local deadline=$((SECONDS + $1))
  shift
  until "$@"; do
    ((SECONDS < deadline)) || return 1
    sleep 0.2
  done
}

compose() {
  if docker compose version >/dev/null 2>&1; then
    docker compose "$@"
  else
    docker-compose "$@"
  fi
}

cleanup() {
  local rc=$?
  trap - EXIT
  set +e
  if [ -n "$compose_up" ]; then
    if ((rc != 0)); then
      compose ps
      compose logs --tail 200
    fi
    step "tear down"
    compose down -v --timeout 20
    docker image rm "$ROLLCALL_IMAGE" >/dev/null
  fi
  if [ -n "$dockerd_pid" ]; then
    kill "$dockerd_pid" 2>/dev/null
    wait "$dockerd_pid" 2>/dev/null
    # dockerd turns these for its bridges and leaves them so.
    [ -z "$forward_policy" ] || iptables -P FORWARD "$forward_policy"
    [ -z "$ip_forward" ] || echo "$ip_forward" >/proc/sys/net/ipv4/ip_forward
  fi
  rm -rf "$scratch"
  exit "$rc"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

engine_answers() { docker info >/dev/null 2>&1; }

start_engine() {
  command -v docker >/dev/null || skip "no docker client is installed"
  engine_answers && return
  [ "$(id -u)" = 0 ] || skip "no container engine answers, and only root could start one"
  command -v dockerd >/dev/null || skip "no container engine answers, and dockerd is not installed"
  command -v iptables >/dev/null || skip "dockerd needs iptables, which is not installed"

  step "start dockerd"
  forward_policy=$(iptables -S FORWARD 2>/dev/null | awk '/^-P/ {print $3}') || forward_policy=
  ip_forward=$(cat /proc/sys/net/ipv4/ip_forward 2>/dev/null) || ip_forward=
  dockerd >"$scratch/dockerd.log" 2>&1 &
  dockerd_pid=$!
  engine_or_exit() { engine_answers || ! kill -0 "$dockerd_pid" 2>/dev/null; }
  if ! poll 60 engine_or_exit || ! engine_answers; then
    tail -n 20 "$scratch/dockerd.log" || true
    skip "dockerd does not start here: $(tail -n 1 "$scratch/dockerd.log")"
  fi
}

request() { curl --noproxy '*' --silent --show-error --fail --max-time 5 "$@"; }

is_ready() { request --output /dev/null "$ready" 2>/dev/null; }

container() { compose ps -q n1; }

inspect() { docker inspect --format "$1" "$(container)"; }

is_healthy() { [ "$(inspect '{{.State.Health.Status}}')" = healthy ]; }

has_instance() { # SERVICE PORT
  request --get "$api/list" --data-urlencode "serviceName=$1" 2>/dev/null | grep -q "\"port\":$2[,}]"
}

register() { # SERVICE PORT EPHEMERAL
  local answer
  answer=$(request -X POST "$api" --data-urlencode "serviceName=$1" --data ip=127.0.0.1 --data "port=$2" --data "ephemeral=$3")
  [ "$answer" = ok ] || fail "registering $1 was answered with: $answer"
}

# crash ends the server without a word. The engine takes `docker kill` for a wish
# of the operator and does not restart after it, so where the process can be seen
# from here it is killed itself and the restart policy is tested too.
crash() {
  local pid
  pid=$(inspect '{{.State.Pid}}')
  if [ "$(id -u)" = 0 ] && tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null | grep -q '^/rollcall server'; then
    kill -KILL "$pid"
  else
    docker kill "$(container)" >/dev/null
    compose start n1
  fi
}

restarted_since() { # STARTED_AT
  local now
  now=$(inspect '{{.State.Running}} {{.State.StartedAt}}')
  [ "${now%% *}" = true ] && [ "${now#* }" != "$1" ]
}

start_engine

step "build the image"
make --no-print-directory image IMAGE="$ROLLCALL_IMAGE"

step "start"
compose_up=yes
compose up -d
poll 30 is_ready || fail "not ready 30 s after the start"
poll 60 is_healthy || fail "ready, but the container's own health check says $(inspect '{{.State.Health.Status}}')"

step "register over HTTP from outside and list"
# The server probes a persistent instance, so this one points at the server itself.
register compose-durable 8848 false
register compose-ephemeral 18080 true
poll 5 has_instance compose-durable 8848 || fail "the persistent instance is not listed"
poll 5 has_instance compose-ephemeral 18080 || fail "the ephemeral instance is not listed"

step "kill the server"
started_at=$(inspect '{{.State.StartedAt}}')
crash
poll 30 restarted_since "$started_at" || fail "the container was not restarted"
poll 30 is_ready || fail "not ready 30 s after the kill"
poll 10 has_instance compose-durable 8848 || fail "the persistent instance is gone after the kill"
poll 60 is_healthy || fail "the container is not healthy after the kill"

step "stop as asked"
compose stop
code=$(docker inspect --format '{{.State.ExitCode}}' "$(compose ps -aq n1 2>/dev/null || container)")
[ "$code" = 0 ] || fail "the server exited with $code when it was asked to stop"

printf '\nPASS: test-compose\n\n'
