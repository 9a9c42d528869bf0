// Print what is wrong with each object of a file, by the schemas that its project publishes: a list of texts and nulls.
const fs = require("fs");
const kinds = {
  "gateway.networking.k8s.io/v1/HTTPRoute": () =>
    require("@kubernetes-models/gateway-api/gateway.networking.k8s.io/v1/HTTPRoute").HTTPRoute,
  "cert-manager.io/v1/Certificate": () => require("@kubernetes-models/cert-manager/cert-manager.io/v1/Certificate").Certificate,
};
const found = JSON.parse(fs.readFileSync(process.argv[2])).map((object) => {
  try {
    new (kinds[`${object.apiVersion}/${object.kind}`]())(object).validate();
    return null;
  } catch (error) {
    return `${error.message} ${JSON.stringify(error.errors ?? error.ajvErrors ?? "")}`;
  }
});
console.log(JSON.stringify(found));
