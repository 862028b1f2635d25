#!/usr/bin/env bash
# Compares and writes Markdown. The status goes into an output, because the comment comes before the job fails.
# Inputs: TEST, and CONTROL or BASELINE with LAKE; FAIL_ON and BY may be empty.
set -uo pipefail
# An empty name would be the folder that the job is in, with the new trace in it: everything would be unchanged.
if [[ -z $TEST || -z $CONTROL$BASELINE ]]; then
  echo '::error::tracelake compare: set test, and control or baseline; one of them is empty'
  exit 2
fi
markdown=$(mktemp "${RUNNER_TEMP:-/tmp}/tracelake-comparison-XXXXXX.md")
options=(--format markdown)
[[ -n $FAIL_ON ]] && options+=(--fail-on "$FAIL_ON")
[[ -n $BY ]] && options+=(--by "$BY")
if [[ -n $BASELINE ]]; then
  options+=(--baseline "$BASELINE" --lake "$LAKE" "$TEST")
else
  options+=("$CONTROL" "$TEST")
fi
tracelake compare "${options[@]}" > "$markdown"
status=$?
# 3: slower. Anything else but 0 is an error, and its message is on stderr.
if [[ $status -ne 0 && $status -ne 3 ]]; then exit "$status"; fi
cat "$markdown" >> "${GITHUB_STEP_SUMMARY:-/dev/null}"
printf 'markdown=%s\nstatus=%s\n' "$markdown" "$status" >> "$GITHUB_OUTPUT"
