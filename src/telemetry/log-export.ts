import { ROOT_CONTEXT, TraceFlags, trace } from "@opentelemetry/api";
import { logs, SeverityNumber } from "@opentelemetry/api-logs";

const SEVERITY: Readonly<Record<string, SeverityNumber>> = {
  debug: SeverityNumber.DEBUG,
  info: SeverityNumber.INFO,
  warn: SeverityNumber.WARN,
  error: SeverityNumber.ERROR,
  fatal: SeverityNumber.FATAL,
};

/** The resource of all records names service and version, so that a record does not. */
interface Line {
  readonly level: string;
  readonly time: string;
  readonly msg: string;
  readonly service?: string;
  readonly version?: string;
  readonly trace_id?: string;
  readonly span_id?: string;
}

/** Returns a stream for lines of pino. Each becomes a record of OpenTelemetry, with the trace that the line names. */
export function createLogExport() {
  const logger = logs.getLogger("avion-timeline");
  return {
    write(text: string): void {
      const { level, time, msg, service: _, version: __, trace_id, span_id, ...attributes } = JSON.parse(text) as Line;
      logger.emit({
        timestamp: new Date(time),
        severityNumber: SEVERITY[level] ?? SeverityNumber.UNSPECIFIED,
        severityText: level,
        body: msg,
        attributes,
        context: contextOf(trace_id, span_id),
      });
    },
  };
}

function contextOf(traceId: string | undefined, spanId: string | undefined) {
  if (traceId === undefined || spanId === undefined) return ROOT_CONTEXT;
  return trace.setSpanContext(ROOT_CONTEXT, { traceId, spanId, traceFlags: TraceFlags.NONE });
}
