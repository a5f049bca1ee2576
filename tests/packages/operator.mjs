// Checks resources of the Prometheus operator, JSON on standard input, by the operator's own schemas:
//
//   node operator.mjs FOLDER-WITH-NODE_MODULES
import { readFileSync } from "node:fs";

const resources = JSON.parse(readFileSync(0, "utf8"));
for (const resource of resources) {
  const models = `${process.argv[2]}/node_modules/@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1`;
  const model = await import(`${models}/${resource.kind}.js`);
  new model[resource.kind](resource).validate();
}
