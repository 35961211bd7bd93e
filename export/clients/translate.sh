#!/usr/bin/env bash
# Translate the arguments, or the lines of standard input, with curl.
#
#     translate.sh "A sentence." "Another one."
#     translate.sh < lines | jq --raw-output '.predictions[].translation'
#
# Prints the JSON responses of the server, one per 16 sentences. TFNMT_URL is the address of the
# model, TFNMT_SIGNATURE the signature, and TFNMT_TARGET the language to translate to, if the model
# has several. If the server is unreachable or busy, it retries up to four times, but not after a
# timeout. The exit code is that of curl: 0 success, 7 cannot connect, 22 refused (the response
# contains the reason), 28 timeout.
set -euo pipefail

url=${TFNMT_URL:-http://127.0.0.1:8501/v1/models/demo}
signature=${TFNMT_SIGNATURE:-serving_default}
target=${TFNMT_TARGET:+, \"target\": \"$TFNMT_TARGET\"}
response=$(mktemp)
trap 'rm -f "$response"' EXIT

# Send the rows of a request and print the response.
send() {
    local code pause status
    for pause in 0.5 1 2 4 ""; do
        code=0
        : > "$response"
        status=$(printf '{"signature_name": "%s", "instances": [%s]}' "$signature" "$1" |
            curl --silent --show-error --fail-with-body --output "$response" \
                --write-out '%{http_code}' --connect-timeout 5 --max-time 30 \
                --header 'Content-Type: application/json' --data-binary @- \
                "$url:predict") || code=$?
        case "$code $status" in
            "7 "* | "22 429" | "22 503") [ -z "$pause" ] || sleep "$pause" ;;
            *) break ;;
        esac
    done
    cat "$response"
    return "$code"
}

rows=
count=0
while IFS= read -r line || [ -n "$line" ]; do
    line=${line%$'\r'}
    # Base64 needs no escapes in JSON.
    text="{\"b64\": \"$(printf %s "$line" | base64 | tr -d '\n')\"}"
    rows+="${rows:+, }{\"text\": $text$target}"
    count=$((count + 1))
    if [ "$count" -eq 16 ]; then
        send "$rows"
        rows= count=0
    fi
done < <(if [ $# -gt 0 ]; then printf '%s\n' "$@"; else cat; fi)
[ -z "$rows" ] || send "$rows"
