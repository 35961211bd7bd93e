#!/usr/bin/env bash
# Translates with nothing but curl: its arguments, or the lines of its standard input.
#
#     translate.sh "A sentence." "Another one."
#     translate.sh < lines | jq --raw-output '.predictions[].translation'
#
# Prints the server's answer as JSON. TFNMT_URL names the model, TFNMT_SIGNATURE another signature.
# The exit code is curl's: 0 done, 7 nobody there, 22 refused (the answer says why), 28 timed out.
set -euo pipefail

url=${TFNMT_URL:-http://127.0.0.1:8501/v1/models/demo}
signature=${TFNMT_SIGNATURE:-serving_default}
answer=$(mktemp)
trap 'rm -f "$answer"' EXIT

# As base64 any text is safe inside JSON.
rows=
while IFS= read -r line || [ -n "$line" ]; do
    rows+=${rows:+,}{\"b64\":\"$(printf %s "$line" | base64 | tr -d '\n')\"}
done < <(if [ $# -gt 0 ]; then printf '%s\n' "$@"; else cat; fi)

# Into a file: of several attempts only the last one's answer is to be printed.
code=0
printf '{"signature_name": "%s", "instances": [%s]}' "$signature" "$rows" |
    curl --silent --show-error --fail-with-body --output "$answer" \
        --connect-timeout 5 --max-time 30 \
        --retry 4 --retry-connrefused --retry-max-time 60 \
        --header 'Content-Type: application/json' --data-binary @- \
        "$url:predict" || code=$?
cat "$answer"
exit "$code"
