import { expect, test } from "@jest/globals";
import { leaveToSdk, otelFaults, otelIgnored, readOtel } from "../../../src/telemetry/otel-variables.js";

test.each<[string, Record<string, string>, string]>([
  ["an unknown exporter of traces", { OTEL_TRACES_EXPORTER: "jaeger" }, "OTEL_TRACES_EXPORTER: "],
  ["one unknown exporter of two", { OTEL_METRICS_EXPORTER: "otlp, statsd" }, "OTEL_METRICS_EXPORTER: "],
  ["an unknown protocol of logs", { OTEL_EXPORTER_OTLP_LOGS_PROTOCOL: "udp" }, "OTEL_EXPORTER_OTLP_LOGS_PROTOCOL: "],
  ["an unknown protocol", { OTEL_EXPORTER_OTLP_PROTOCOL: "http" }, "OTEL_EXPORTER_OTLP_PROTOCOL: "],
  ["an unknown sampler", { OTEL_TRACES_SAMPLER: "half" }, "OTEL_TRACES_SAMPLER: "],
  [
    "a ratio above 1",
    { OTEL_TRACES_SAMPLER: "traceidratio", OTEL_TRACES_SAMPLER_ARG: "2" },
    "OTEL_TRACES_SAMPLER_ARG: ",
  ],
  ["a switch that is neither", { OTEL_SDK_DISABLED: "yes" }, "OTEL_SDK_DISABLED: "],
  ["a time that is no number", { OTEL_BSP_SCHEDULE_DELAY: "5s" }, "OTEL_BSP_SCHEDULE_DELAY: "],
  ["an attribute without a value", { OTEL_RESOURCE_ATTRIBUTES: "team=a,zone" }, "OTEL_RESOURCE_ATTRIBUTES: "],
  ["an attribute of a broken encoding", { OTEL_RESOURCE_ATTRIBUTES: "team=%zz" }, "OTEL_RESOURCE_ATTRIBUTES: "],
])("%s is a fault that names the variable", (_, env, fault) => {
  expect(otelFaults(env)).toEqual([expect.stringContaining(fault)]);
});

test("values of the specification are no faults, and neither are empty ones", () => {
  const env = {
    OTEL_TRACES_EXPORTER: "otlp,console",
    OTEL_METRICS_EXPORTER: "prometheus",
    OTEL_TRACES_SAMPLER: "parentbased_traceidratio",
    OTEL_TRACES_SAMPLER_ARG: "0.25",
    OTEL_RESOURCE_ATTRIBUTES: "team=a%2Cb, zone=x",
    OTEL_EXPORTER_OTLP_TIMEOUT: "10000",
    OTEL_EXPORTER_OTLP_PROTOCOL: "",
    OTEL_SDK_DISABLED: "",
  };
  expect(otelFaults(env)).toEqual([]);
  expect(otelIgnored(env)).toEqual([]);
});

test("variables without an effect are named, unless they say what is so anyway", () => {
  const env = {
    OTEL_PROPAGATORS: "tracecontext,baggage",
    OTEL_LOGS_EXPORTER: "none",
    OTEL_EXPORTER_PROMETHEUS_PORT: "9464",
    OTEL_EXPORTER_OTLP_LOGS_ENDPOINT: "http://collector",
    OTEL_BLRP_SCHEDULE_DELAY: "100",
    OTEL_LOG_LEVEL: "",
    PATH: "/bin",
  };
  expect(otelIgnored(env)).toEqual(["OTEL_EXPORTER_PROMETHEUS_PORT"]);
  expect(otelIgnored({ OTEL_PROPAGATORS: "b3", OTEL_LOGS_EXPORTER: "otlp" })).toEqual(["OTEL_PROPAGATORS"]);
});

test.each<[string, Record<string, string>, boolean, string[]]>([
  ["nothing is set", {}, false, []],
  ["the endpoint is empty", { OTEL_EXPORTER_OTLP_ENDPOINT: "" }, false, []],
  ["an endpoint is set", { OTEL_EXPORTER_OTLP_ENDPOINT: "http://c" }, true, []],
  ["the exporter is none", { OTEL_TRACES_EXPORTER: "none", OTEL_EXPORTER_OTLP_ENDPOINT: "http://c" }, false, []],
  ["metrics go by OTLP, too", { OTEL_METRICS_EXPORTER: "otlp,prometheus" }, false, ["otlp"]],
  [
    "the SDK is disabled",
    { OTEL_SDK_DISABLED: "true", OTEL_TRACES_EXPORTER: "otlp", OTEL_METRICS_EXPORTER: "otlp" },
    false,
    [],
  ],
])("what is exported where %s", (_, env, exportsTraces, metricExporters) => {
  expect(readOtel(env)).toMatchObject({ exportsTraces, metricExporters });
});

test.each<[string, Record<string, string>, boolean]>([
  ["nothing is set", {}, false],
  ["an endpoint is set", { OTEL_EXPORTER_OTLP_ENDPOINT: "http://c" }, false],
  ["an exporter is set", { OTEL_LOGS_EXPORTER: "otlp" }, true],
  ["the exporter is none", { OTEL_LOGS_EXPORTER: "none" }, false],
  ["the SDK is disabled", { OTEL_SDK_DISABLED: "true", OTEL_LOGS_EXPORTER: "otlp" }, false],
])("whether logs are exported where %s", (_, env, exportsLogs) => {
  expect(readOtel(env).exportsLogs).toBe(exportsLogs);
  const left: NodeJS.ProcessEnv = { ...env };
  leaveToSdk(left);
  expect(left["OTEL_LOGS_EXPORTER"]).toBe(exportsLogs ? "otlp" : "none");
});
