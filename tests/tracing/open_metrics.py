"""Reads OpenMetrics from standard input with the parser of Prometheus' own client, and prints the exemplars, a line each."""

import json
import sys

from prometheus_client.openmetrics.parser import text_string_to_metric_families

for family in text_string_to_metric_families(sys.stdin.read()):
    for sample in family.samples:
        if sample.exemplar:
            exemplar = sample.exemplar
            print(json.dumps({
                "name": sample.name,
                "bound": float(sample.labels["le"]),
                "labels": exemplar.labels,
                "value": exemplar.value,
                "at": float(exemplar.timestamp),
            }))
