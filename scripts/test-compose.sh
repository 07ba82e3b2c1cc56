#!/usr/bin/env bash
# Starts docker-compose.yml from a fresh image and uses its nodes from outside as
# clients would, while containers are stopped, killed and made anew. The stories are
# in integration/compose_test.go.
#
# Without a container engine that runs here it prints a SKIP line and exits 0.
# It starts dockerd itself when that is installed, nobody runs it, and the
# caller is root; then it also stops it again.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

in_use() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# Away from the default ports, so that nodes on this machine may stay up.
http=${N1_HTTP:-18848}
while in_use "$http" || in_use "$((http + 10))" || in_use "$((http + 20))" ||
  in_use "$((http + 1000))" || in_use "$((http + 1010))" || in_use "$((http + 1020))"; do
  http=$((http + 7))
done
export N1_HTTP=$http N2_HTTP=$((http + 10)) N3_HTTP=$((http + 20))
export N1_GRPC=$((http + 1000)) N2_GRPC=$((http + 1010)) N3_GRPC=$((http + 1020))
export COMPOSE_PROJECT_NAME=rollcall-test ROLLCALL_IMAGE=rollcall:test

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

if docker compose version >/dev/null 2>&1; then
  compose_command="docker compose"
else
  compose_command=docker-compose
fi
compose() { $compose_command "$@"; }

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
    docker ps -q --filter label=rollcall-test | xargs -r docker kill >/dev/null
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

all_ready() {
  local port
  for port in "$N1_HTTP" "$N2_HTTP" "$N3_HTTP"; do
    request --output /dev/null "http://127.0.0.1:$port/readyz" 2>/dev/null || return 1
  done
}

all_healthy() {
  local id
  for id in $(compose ps -q); do
    [ "$(docker inspect --format '{{.State.Health.Status}}' "$id")" = healthy ] || return 1
  done
}

start_engine

step "build the image"
make --no-print-directory image IMAGE="$ROLLCALL_IMAGE"

step "start"
compose_up=yes
compose up -d
poll 60 all_ready || fail "not ready 60 s after the start"
poll 60 all_healthy || fail "ready, but a container's own health check does not say so"

step "use it from outside"
export ROLLCALL_TEST_COMPOSE=$N1_HTTP,$N2_HTTP,$N3_HTTP ROLLCALL_TEST_COMPOSE_COMMAND=$compose_command
(cd integration && go test -count=1 -timeout 10m -v -run '^TestCompose_' .) || fail "see above"

printf '\nPASS: test-compose\n\n'
