#!/usr/bin/env bash
# Translates with nothing but curl: its arguments, or the lines of its standard input.
#
#     translate.sh "A sentence." "Another one."
#     translate.sh < lines | jq --raw-output '.predictions[].translation'
#
# Prints the server's answers as JSON, one for 16 sentences. TFNMT_URL names the model,
# TFNMT_SIGNATURE another signature. Asks again, four times, where nobody is there or the server is
# busy, and not if an answer takes too long. The exit code is curl's: 0 done, 7 nobody there, 22
# refused (the answer says why), 28 timed out.
set -euo pipefail

url=${TFNMT_URL:-http://127.0.0.1:8501/v1/models/demo}
signature=${TFNMT_SIGNATURE:-serving_default}
answer=$(mktemp)
trap 'rm -f "$answer"' EXIT

# The rows of a request -> the server's answer.
ask() {
    local code pause status
    for pause in 0.5 1 2 4 ""; do
        code=0
        : > "$answer"
        status=$(printf '{"signature_name": "%s", "instances": [%s]}' "$signature" "$1" |
            curl --silent --show-error --fail-with-body --output "$answer" \
                --write-out '%{http_code}' --connect-timeout 5 --max-time 30 \
                --header 'Content-Type: application/json' --data-binary @- \
                "$url:predict") || code=$?
        case "$code $status" in
            "7 "* | "22 429" | "22 503") [ -z "$pause" ] || sleep "$pause" ;;
            *) break ;;
        esac
    done
    cat "$answer"
    return "$code"
}

rows=
count=0
while IFS= read -r line || [ -n "$line" ]; do
    line=${line%$'\r'}
    # As base64 any text is safe inside JSON.
    rows+=${rows:+,}{\"b64\":\"$(printf %s "$line" | base64 | tr -d '\n')\"}
    count=$((count + 1))
    if [ "$count" -eq 16 ]; then
        ask "$rows"
        rows= count=0
    fi
done < <(if [ $# -gt 0 ]; then printf '%s\n' "$@"; else cat; fi)
[ -z "$rows" ] || ask "$rows"
