"""Makes the schemas beside this file, from the strict ones that the package kubernetes-validate of PyPI carries.

    pip download --no-deps kubernetes-validate==1.37.0
    python3 test/unit/shipping/kubernetes/trim.py kubernetes_validate-*.whl v1.25.0 v1.37.0

Each file holds one version of Kubernetes, and of it the kinds that the chart makes, without descriptions. The schemas are
part of Kubernetes, under the Apache License 2.0.
"""

import json
import re
import sys
import zipfile
from pathlib import Path

KINDS = {
    "v1": ("core.v1", ["ConfigMap", "Secret", "Service", "ServiceAccount"]),
    "apps/v1": ("apps.v1", ["Deployment"]),
    "batch/v1": ("batch.v1", ["CronJob"]),
    "autoscaling/v2": ("autoscaling.v2", ["HorizontalPodAutoscaler"]),
    "networking.k8s.io/v1": ("networking.v1", ["Ingress", "NetworkPolicy"]),
    "policy/v1": ("policy.v1", ["PodDisruptionBudget"]),
}


def bare(node):
    if isinstance(node, list):
        return [bare(one) for one in node]
    if not isinstance(node, dict):
        return node
    kept = {key: one for key, one in node.items() if not (key == "description" and isinstance(one, str))}
    return {key: bare(one) for key, one in kept.items() if not key.startswith("x-kubernetes")}


def trimmed(definitions):
    used, rules = {}, []
    waiting = []
    for version, (group, kinds) in KINDS.items():
        for kind in kinds:
            name = f"io.k8s.api.{group}.{kind}"
            waiting.append(name)
            named = {"apiVersion": {"const": version}, "kind": {"const": kind}}
            then = {"$ref": f"#/$defs/{name}"}
            rules.append({"if": {"properties": {"kind": {"const": kind}}}, "then": {"allOf": [then, {"properties": named}]}})
    while waiting:
        name = waiting.pop()
        if name not in used:
            used[name] = bare(definitions[name])
            waiting += re.findall(r'"\$ref": "[^"]*/([\w.-]+)"', json.dumps(definitions[name]))
    kinds = [kind for _, (_, some) in KINDS.items() for kind in some]
    schema = {"$schema": "http://json-schema.org/draft-07/schema#", "properties": {"kind": {"enum": kinds}}}
    text = json.dumps({**schema, "allOf": rules, "$defs": dict(sorted(used.items()))}, separators=(",", ":"))
    return re.sub(r'"\$ref":"[^"]*/([\w.-]+)"', r'"$ref":"#/$defs/\1"', text)


def main(wheel, *versions):
    for version in versions:
        path = f"kubernetes_validate/kubernetes-json-schema/{version}-local-strict/_definitions.json"
        definitions = json.loads(zipfile.ZipFile(wheel).read(path))["$defs"]
        Path(__file__).with_name(f"{version}.json").write_text(trimmed(definitions) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
