import type { IncomingMessage, ServerResponse } from "node:http";
import { PrometheusExporter } from "@opentelemetry/exporter-prometheus";
import { resourceFromAttributes } from "@opentelemetry/resources";
import { NodeSDK } from "@opentelemetry/sdk-node";
import { AlwaysOffSampler, NoopSpanProcessor, ParentBasedSampler } from "@opentelemetry/sdk-trace-base";
import { ActiveContext } from "./active-context.js";

export interface Telemetry {
  /** If false, spans without a parent are not sampled. */
  readonly exportsTraces: boolean;
  scrape(request: IncomingMessage, response: ServerResponse): void;
  close(): Promise<void>;
}

/**
 * Traces leave the process only where `OTEL_*` names an exporter or endpoint; trace ids exist either way.
 * Must run before the modules that measure are loaded: an instrument made earlier measures nothing.
 */
export function startTelemetry(env: NodeJS.ProcessEnv, version: string): Telemetry {
  const { OTEL_TRACES_EXPORTER, OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_EXPORTER_OTLP_TRACES_ENDPOINT } = env;
  const exportsTraces = Boolean(
    OTEL_TRACES_EXPORTER ?? OTEL_EXPORTER_OTLP_ENDPOINT ?? OTEL_EXPORTER_OTLP_TRACES_ENDPOINT,
  );
  env["OTEL_LOGS_EXPORTER"] ??= "none";
  const prometheus = new PrometheusExporter({ preventServerStart: true });
  const sdk = new NodeSDK({
    serviceName: env["OTEL_SERVICE_NAME"] ?? "avion-timeline",
    resource: resourceFromAttributes({ "service.version": version }),
    autoDetectResources: false,
    metricReaders: [prometheus],
    contextManager: new ActiveContext(),
    instrumentations: [],
    ...(exportsTraces
      ? {}
      : {
          spanProcessors: [new NoopSpanProcessor()],
          sampler: new ParentBasedSampler({ root: new AlwaysOffSampler() }),
        }),
  });
  sdk.start();
  return {
    exportsTraces,
    scrape: (request, response) => prometheus.getMetricsRequestHandler(request, response),
    close: () => sdk.shutdown().catch(() => undefined),
  };
}
