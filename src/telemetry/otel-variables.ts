type Env = Readonly<Record<string, string | undefined>>;

const listIn = (text: string | undefined): string[] =>
  (text ?? "")
    .split(",")
    .map((part) => part.trim())
    .filter((part) => part !== "");

const PROTOCOLS = ["grpc", "http/protobuf", "http/json"];
const RATIO_SAMPLERS = ["traceidratio", "parentbased_traceidratio"];
const SAMPLERS = ["always_on", "always_off", "parentbased_always_on", "parentbased_always_off", ...RATIO_SAMPLERS];

/** The specification of OpenTelemetry's variables lists these values, and this service obeys them. */
const VALUES: Readonly<Record<string, readonly string[]>> = {
  OTEL_TRACES_EXPORTER: ["otlp", "zipkin", "console", "none"],
  OTEL_METRICS_EXPORTER: ["otlp", "prometheus", "console", "none"],
  OTEL_LOGS_EXPORTER: ["otlp", "console", "none"],
  OTEL_PROPAGATORS: ["tracecontext", "baggage", "b3", "b3multi", "jaeger", "xray", "ottrace", "none"],
  OTEL_TRACES_SAMPLER: SAMPLERS,
  OTEL_EXPORTER_OTLP_PROTOCOL: PROTOCOLS,
  OTEL_EXPORTER_OTLP_TRACES_PROTOCOL: PROTOCOLS,
  OTEL_EXPORTER_OTLP_METRICS_PROTOCOL: PROTOCOLS,
  OTEL_EXPORTER_OTLP_LOGS_PROTOCOL: PROTOCOLS,
};

const LISTS = ["OTEL_TRACES_EXPORTER", "OTEL_METRICS_EXPORTER", "OTEL_LOGS_EXPORTER", "OTEL_PROPAGATORS"];

/** Names the settings of OpenTelemetry that cannot be obeyed. An empty variable counts as unset. */
export function otelFaults(env: Env): string[] {
  const faults = Object.entries(VALUES).flatMap(([name, known]) => {
    const given = env[name]?.trim() ?? "";
    const values = LISTS.includes(name) ? listIn(given) : given === "" ? [] : [given];
    return values.every((value) => known.includes(value)) ? [] : [`${name}: must be one of ${known.join(", ")}`];
  });
  if (!/^(true|false)?$/i.test(env["OTEL_SDK_DISABLED"]?.trim() ?? ""))
    faults.push("OTEL_SDK_DISABLED: must be true or false");
  return [...faults, ...numberFaults(env), ...samplerFaults(env), ...resourceFaults(env)];
}

const NUMBERS =
  /^OTEL_(BSP_\w+|BLRP_\w+|(SPAN|EVENT|LINK|ATTRIBUTE|LOGRECORD)_\w+|METRIC_EXPORT_\w+|EXPORTER_OTLP_(\w+_)?TIMEOUT)$/;

const numberFaults = (env: Env): string[] =>
  Object.entries(env)
    .filter(([name, value = ""]) => NUMBERS.test(name) && value.trim() !== "" && !/^\d+$/.test(value.trim()))
    .map(([name]) => `${name}: must be a whole number, 0 or more`);

function samplerFaults({ OTEL_TRACES_SAMPLER: sampler = "", OTEL_TRACES_SAMPLER_ARG: ratio = "" }: Env): string[] {
  if (ratio === "" || !RATIO_SAMPLERS.includes(sampler)) return [];
  return Number(ratio) >= 0 && Number(ratio) <= 1 ? [] : ["OTEL_TRACES_SAMPLER_ARG: must be a number from 0 to 1"];
}

/** The SDK discards all of them for one that it cannot read. */
function resourceFaults({ OTEL_RESOURCE_ATTRIBUTES: attributes }: Env): string[] {
  const isReadable = (pair: string): boolean => {
    const [name = "", ...values] = pair.split("=");
    try {
      return name.trim() !== "" && values.length === 1 && decodeURIComponent(pair) !== "";
    } catch {
      return false;
    }
  };
  if (listIn(attributes).every(isReadable)) return [];
  return ["OTEL_RESOURCE_ATTRIBUTES: must be a list of key=value, with commas and equals signs percent-encoded"];
}

const OBEYED = new RegExp(
  `^OTEL_(${[
    "SDK_DISABLED|SERVICE_NAME|RESOURCE_ATTRIBUTES|(TRACES|METRICS|LOGS)_EXPORTER|TRACES_SAMPLER|TRACES_SAMPLER_ARG",
    "BSP_\\w+|BLRP_\\w+|(SPAN|EVENT|LINK|ATTRIBUTE|LOGRECORD)_\\w+|METRIC_EXPORT_(INTERVAL|TIMEOUT)",
    "EXPORTER_OTLP_\\w+|EXPORTER_ZIPKIN_\\w+",
  ].join("|")})$`,
);

/** Traces go on by the headers of W3C Trace Context. */
const isDefault = (name: string, values: readonly string[]): boolean =>
  name === "OTEL_PROPAGATORS" && values.includes("tracecontext") && values.every(isW3c);

const isW3c = (value: string): boolean => value === "tracecontext" || value === "baggage";

/** Returns names of variables of OpenTelemetry that are set and change nothing here. */
export const otelIgnored = (env: Env): string[] =>
  Object.entries(env)
    .filter(([name, value = ""]) => name.startsWith("OTEL_") && value !== "")
    .filter(([name, value]) => !OBEYED.test(name) && !isDefault(name, listIn(value)))
    .map(([name]) => name);

export interface OtelSettings {
  /**
   * Traces are exported only if a variable names an exporter or an endpoint: the specification's default would send
   * them to localhost.
   */
  readonly exportsTraces: boolean;
  /** Exporters beside `/metrics`: `otlp`, `console`. */
  readonly metricExporters: readonly string[];
  /** Logs are exported if a variable names an exporter. They always go to the standard output. */
  readonly exportsLogs: boolean;
}

export function readOtel(env: Env): OtelSettings {
  if (/^true$/i.test(env["OTEL_SDK_DISABLED"]?.trim() ?? ""))
    return { exportsTraces: false, metricExporters: [], exportsLogs: false };
  const traces = listIn(env["OTEL_TRACES_EXPORTER"]);
  const metrics = listIn(env["OTEL_METRICS_EXPORTER"]);
  const logs = listIn(env["OTEL_LOGS_EXPORTER"]);
  const hasEndpoint = env["OTEL_EXPORTER_OTLP_ENDPOINT"] || env["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"];
  return {
    exportsTraces: traces.length > 0 ? !traces.includes("none") : Boolean(hasEndpoint),
    metricExporters: metrics.includes("none") ? [] : metrics.filter((name) => name !== "prometheus"),
    exportsLogs: logs.length > 0 && !logs.includes("none"),
  };
}

/** Removes what the SDK must not read: empty variables, which are unset, and those that the service obeys by itself. */
export function leaveToSdk(env: NodeJS.ProcessEnv): void {
  if (!readOtel(env).exportsLogs) env["OTEL_LOGS_EXPORTER"] = "none";
  for (const [name, value] of Object.entries(env)) if (name.startsWith("OTEL_") && !value?.trim()) delete env[name];
  for (const name of ["OTEL_SDK_DISABLED", "OTEL_LOG_LEVEL", "OTEL_PROPAGATORS"]) delete env[name];
}
