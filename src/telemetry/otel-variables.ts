import { z } from "zod";

type Env = Readonly<Record<string, string | undefined>>;

const listIn = (text = ""): string[] =>
  text
    .split(",")
    .map((part) => part.trim())
    .filter((part) => part !== "");

const oneOf = (values: readonly string[]) => z.enum(values, { error: `must be one of ${values.join(", ")}` });
const listOf = (...values: string[]) =>
  z
    .string()
    .transform(listIn)
    .pipe(z.array(oneOf(values)));
const wholeNumber = z.string().regex(/^\d+$/, "must be a whole number, 0 or more");

const RATIO_SAMPLERS = ["traceidratio", "parentbased_traceidratio"];
const SAMPLERS = ["always_on", "always_off", "parentbased_always_on", "parentbased_always_off", ...RATIO_SAMPLERS];

function isAttribute(pair: string): boolean {
  const [name = "", ...values] = pair.split("=");
  try {
    return name.trim() !== "" && values.length === 1 && decodeURIComponent(pair) !== "";
  } catch {
    return false;
  }
}

/** The SDK discards all attributes for one that it cannot read. */
const attributes = z.string().refine((text) => listIn(text).every(isAttribute), {
  error: "must be a list of key=value, with commas and equals signs percent-encoded",
});

/** The variables that this service obeys, with the values that their specification lists. The first that matches counts. */
const OBEYED: readonly (readonly [name: RegExp, schema: z.ZodType])[] = [
  [/^OTEL_SDK_DISABLED$/, z.string().regex(/^(true|false)$/i, "must be true or false")],
  [/^OTEL_RESOURCE_ATTRIBUTES$/, attributes],
  [/^OTEL_TRACES_EXPORTER$/, listOf("otlp", "zipkin", "console", "none")],
  [/^OTEL_METRICS_EXPORTER$/, listOf("otlp", "prometheus", "console", "none")],
  [/^OTEL_LOGS_EXPORTER$/, listOf("otlp", "console", "none")],
  [/^OTEL_PROPAGATORS$/, listOf("tracecontext", "baggage", "b3", "b3multi", "jaeger", "xray", "ottrace", "none")],
  [/^OTEL_TRACES_SAMPLER$/, oneOf(SAMPLERS)],
  [/^OTEL_EXPORTER_OTLP_((TRACES|METRICS|LOGS)_)?PROTOCOL$/, oneOf(["grpc", "http/protobuf", "http/json"])],
  [/^OTEL_(BSP|BLRP|SPAN|EVENT|LINK|ATTRIBUTE|LOGRECORD)_\w+$/, wholeNumber],
  [/^OTEL_(METRIC_EXPORT_(INTERVAL|TIMEOUT)|EXPORTER_OTLP_(\w+_)?TIMEOUT)$/, wholeNumber],
  [/^OTEL_(SERVICE_NAME|TRACES_SAMPLER_ARG|EXPORTER_(OTLP|ZIPKIN)_\w+)$/, z.string()],
];

/** An empty variable counts as unset. */
const given = (env: Env): (readonly [name: string, value: string, schema: z.ZodType | undefined])[] =>
  Object.entries(env)
    .filter(([name, value]) => name.startsWith("OTEL_") && value?.trim())
    .map(([name, value = ""]) => [name, value.trim(), OBEYED.find(([pattern]) => pattern.test(name))?.[1]]);

/** Names the settings of OpenTelemetry that cannot be obeyed. */
export function otelFaults(env: Env): string[] {
  const faults = given(env).flatMap(([name, value, schema]) => {
    const [issue] = schema?.safeParse(value).error?.issues ?? [];
    return issue ? [`${name}: ${issue.message}`] : [];
  });
  const { OTEL_TRACES_SAMPLER: sampler = "", OTEL_TRACES_SAMPLER_ARG: ratio = "" } = env;
  if (RATIO_SAMPLERS.includes(sampler) && !(Number(ratio) >= 0 && Number(ratio) <= 1))
    faults.push("OTEL_TRACES_SAMPLER_ARG: must be a number from 0 to 1");
  return faults;
}

/** Returns names of variables that are set and change nothing here: traces go on by W3C Trace Context. */
export const otelIgnored = (env: Env): string[] =>
  given(env)
    .filter(([name, value, schema]) => schema === undefined || (name === "OTEL_PROPAGATORS" && !isW3c(listIn(value))))
    .map(([name]) => name);

const isW3c = (values: readonly string[]): boolean =>
  values.includes("tracecontext") && values.every((value) => value === "tracecontext" || value === "baggage");

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
