#!/usr/bin/env bash
# Writes MARKDOWN as a comment on pull request NUMBER, or over the comment of an earlier push. Other comments of the
# same bot stay: ours begins with a mark.
set -euo pipefail
mark='<!-- tracelake compare -->'
# Of several comparisons, also of one job's matrix, each has its own comment.
[[ -n ${KEY:-} ]] && mark="<!-- tracelake compare $(printf '%s' "$KEY" | cksum | cut -d' ' -f1) -->"
body=$(printf '%s\n%s' "$mark" "$(cat "$MARKDOWN")")
comments="repos/$GITHUB_REPOSITORY/issues/$NUMBER/comments"
ours=$(gh api "$comments" --paginate --jq ".[] | select(.body | startswith(\"$mark\")) | .id" | sed -n 1p)
if [[ -n $ours ]]; then
  gh api --method PATCH "repos/$GITHUB_REPOSITORY/issues/comments/$ours" --raw-field body="$body" > /dev/null
else
  gh api --method POST "$comments" --raw-field body="$body" > /dev/null
fi
