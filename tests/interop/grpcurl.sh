#!/bin/sh
# The scenario from grpcurl: `ok NAME` or `not ok NAME: why` for each step, and `done`.
# Usage: grpcurl.sh GRPCURL PROTO-DIRECTORY PYTHON (for the content of files in JSON)
set -eu
grpcurl=$1
proto=$2
python=$3
process=ateenv.v1alpha.ProcessService
files=ateenv.v1alpha.FileSystemService

call() { "$grpcurl" -plaintext -max-time 60 "$@" 2>&1; }
bearer="authorization: Bearer $ATEENV_TOKEN"

# check NAME TEXT WORD...: all words are in the text.
check() {
  name=$1
  text=$2
  shift 2
  for word in "$@"; do
    case $text in
      *"$word"*) ;;
      *)
        printf 'not ok %s: no "%s" in: %s\n' "$name" "$word" "$(printf %s "$text" | tr '\n' ' ')"
        return 0
        ;;
    esac
  done
  printf 'ok %s\n' "$name"
}

# field NAME JSON: the first string or number of that name.
field() {
  printf '%s\n' "$2" | sed -n "s/.*\"$1\": *\"\{0,1\}\([^\",]*\)\"\{0,1\},\{0,1\}\$/\1/p" | head -n 1
}

# start TARGET JSON-LIST: prints the process id.
start() { field processId "$(call -d "{\"command\": $2}" "$1" $process/StartProcess)"; }

check list "$(call "$ATEENV_TARGET" list)" \
  $process $files grpc.health.v1.Health grpc.reflection.v1.ServerReflection \
  grpc.reflection.v1alpha.ServerReflection
check list_service "$(call "$ATEENV_TARGET" list $process)" \
  $process.StartProcess $process.GetProcess $process.StreamProcessOutputs $process.KillProcess
check describe "$(call "$ATEENV_TARGET" describe)" \
  "service ProcessService" "service FileSystemService" "service Health"
check describe_message "$(call "$ATEENV_TARGET" describe ateenv.v1alpha.Process)" \
  "message Process" ".google.protobuf.Timestamp started_at = 4"
check describe_enum "$(call "$ATEENV_TARGET" describe ateenv.v1alpha.ProcessStatus)" \
  "PROCESS_STATUS_TERMINATED = 4"

id=$(start "$ATEENV_TARGET" '["sh", "-c", "echo hi; exit 3"]')
# aGkK is "hi\n".
check follow "$(call -d "{\"process_id\": \"$id\", \"follow\": true}" "$ATEENV_TARGET" $process/StreamProcessOutputs)" \
  OUTPUT_SOURCE_STDOUT aGkK
check get "$(call -d "{\"process_id\": \"$id\"}" "$ATEENV_TARGET" $process/GetProcess)" \
  PROCESS_STATUS_FAILED '"exitCode": 3' finishedAt
# aQo= is "i\n".
check resume "$(call -d "{\"process_id\": \"$id\", \"stdout_offset\": 1}" "$ATEENV_TARGET" $process/StreamProcessOutputs)" \
  aQo=
check with_proto_files "$(call -import-path "$proto" -proto ateenv/v1alpha/guest.proto \
  -d "{\"process_id\": \"$id\"}" "$ATEENV_TARGET" $process/GetProcess)" PROCESS_STATUS_FAILED

id=$(start "$ATEENV_TARGET" '["sleep", "1000"]')
check deadline "$("$grpcurl" -plaintext -max-time 1 -d "{\"process_id\": \"$id\", \"follow\": true}" \
  "$ATEENV_TARGET" $process/StreamProcessOutputs 2>&1 || :)" DeadlineExceeded
check kill "$(call -d "{\"process_id\": \"$id\"}" "$ATEENV_TARGET" $process/KillProcess)" '"exitCode": 137'
check killed "$(call -d "{\"process_id\": \"$id\"}" "$ATEENV_TARGET" $process/GetProcess)" PROCESS_STATUS_TERMINATED

# grpcurl's own limit for what it takes is 4 MiB a message: the default one.
size=3000000
check upload "$("$python" -c '
import base64, json
print(json.dumps({"path": "grpcurl/file", "mode": 0o600}))
for _ in range(3):
    print(json.dumps({"chunk": base64.b64encode(b"a" * 1000000).decode()}))
' | call -d @ "$ATEENV_TARGET" $files/WriteFile)" "\"bytesWritten\": \"$size\""
check download "$(call -d '{"path": "grpcurl/file"}' "$ATEENV_TARGET" $files/ReadFile | "$python" -c '
import base64, json, sys
text, decoder, data = sys.stdin.read(), json.JSONDecoder(), b""
while text.strip():
    value, end = decoder.raw_decode(text.strip())
    data += base64.b64decode(value["data"])
    text = text.strip()[end:]
print("same" if data == b"a" * 3000000 else f"{len(data)} bytes")
')" same

refuse() { call -d "$3" "$1" "$2" || :; }
check invalid_argument "$(refuse "$ATEENV_TARGET" $process/StartProcess '{}')" \
  "Code: InvalidArgument" "command cannot be empty"
check not_found "$(refuse "$ATEENV_TARGET" $process/GetProcess '{"process_id": "nobody"}')" \
  "Code: NotFound" 'process "nobody" not found'
check permission_denied "$(refuse "$ATEENV_TARGET" $files/ReadFile '{"path": "/etc/passwd"}')" \
  "Code: PermissionDenied" 'access denied: path "/etc/passwd" is outside sandbox root directory'
check failed_precondition "$(refuse "$ATEENV_TARGET" $files/ReadFile '{"path": "."}')" \
  "Code: FailedPrecondition"
check no_file_data "$(printf '' | call -d @ "$ATEENV_TARGET" $files/WriteFile || :)" \
  "Code: InvalidArgument" "no file data received"

check health "$(call "$ATEENV_TARGET" grpc.health.v1.Health/Check)" SERVING
check health_of_service "$(call -d "{\"service\": \"$process\"}" "$ATEENV_TARGET" grpc.health.v1.Health/Check)" SERVING
check health_unknown "$(refuse "$ATEENV_TARGET" grpc.health.v1.Health/Check '{"service": "nope"}')" "Code: NotFound"

proto_files="-import-path $proto -proto ateenv/v1alpha/guest.proto"
# shellcheck disable=SC2086 # a list of words
check no_token "$(call $proto_files -d '{"process_id": "x"}' "$ATEENV_LIMITED_TARGET" $process/GetProcess || :)" \
  "Code: Unauthenticated"
check reflection_without_token "$(call "$ATEENV_LIMITED_TARGET" list || :)" nauthenticated
check reflection_with_token "$(call -H "$bearer" "$ATEENV_LIMITED_TARGET" list)" $process
check wrong_token "$(call -H "${bearer}x" "$ATEENV_LIMITED_TARGET" list || :)" nauthenticated
check token "$(call -H "$bearer" -d '{"process_id": "x"}' "$ATEENV_LIMITED_TARGET" $process/GetProcess || :)" \
  "Code: NotFound"
check metadata "$(call -v -H 'x-env-id: e' -H "x-large: $(printf '%06000d' 0)" -d '{"process_id": "x"}' \
  "$ATEENV_TARGET" $process/GetProcess || :)" "ateenv-version" "Code: NotFound"
echo done
