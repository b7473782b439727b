#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright Authors of podweir
#
# Pushes podweir's image, which docker has, and that of the pods that make
# traffic to a registry. "push.sh IMAGE REGISTRY"; DOCKER=echo prints the commands.
set -euo pipefail
image=${1:?usage: push.sh IMAGE REGISTRY}
registry=${2:?usage: push.sh IMAGE REGISTRY}
docker=${DOCKER:-docker}
tools=$(dirname "$0")/../../../bin/tools

tag=$registry/podweir/podweir:${image##*:}
"$docker" tag "$image" "$tag"
"$docker" push "$tag"
work=$registry/podweir/work:1
tar -C "$tools" -c work | "$docker" import --change 'ENTRYPOINT ["/work"]' - "$work"
"$docker" push "$work"
