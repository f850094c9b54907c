const COMPONENTS =
  "analysis|bridge|consistency|erasure|fanout|gateway|notifications|operators|outbox|posts|reads|rewards|users";
/** A room of the posts imports those before it. */
const POSTS = ["drops", "reactions", "remote", "documents"];
const SANDBOX = "^src/sandbox/(brokers|world)/";

/**
 * Imports go one way only: cli > roles > components > state > upstreams > platform > delivery > telemetry > contracts >
 * kernel. The platform obeys verdicts of the delivery kit, so it stands above it.
 */
export default {
  forbidden: [
    { name: "no-cycles", severity: "error", from: {}, to: { circular: true } },
    {
      name: "kernel-imports-nothing-of-ours",
      severity: "error",
      from: { path: "^src/kernel" },
      to: { path: "^src/(?!kernel)" },
    },
    {
      name: "contracts-know-the-kernel-and-the-protos",
      severity: "error",
      from: { path: "^src/contracts" },
      to: { path: "^src/(?!contracts|kernel|gen)" },
    },
    {
      name: "telemetry-knows-contracts",
      severity: "error",
      from: { path: "^src/telemetry" },
      to: { path: "^src/(?!telemetry|contracts|kernel|gen)" },
    },
    {
      name: "delivery-knows-telemetry",
      severity: "error",
      from: { path: "^src/delivery" },
      to: { path: "^src/(?!delivery|telemetry|contracts|kernel|gen)" },
    },
    {
      name: "platform-knows-no-component",
      severity: "error",
      from: { path: "^src/platform" },
      to: { path: `^src/(${COMPONENTS}|state|upstreams|roles|cli)/` },
    },
    {
      name: "upstreams-know-no-component",
      severity: "error",
      from: { path: "^src/upstreams" },
      to: { path: `^src/(${COMPONENTS}|state|roles|cli)/` },
    },
    {
      name: "state-knows-no-component",
      severity: "error",
      from: { path: "^src/state/" },
      to: { path: `^src/(${COMPONENTS}|roles|cli)/` },
    },
    {
      name: "state-is-entered-by-its-door",
      comment: "keys, magic members and scripts stay inside",
      severity: "error",
      from: { path: "^src/(?!state/)" },
      to: { path: "^src/state/", pathNot: "^src/state/index\\.ts$" },
    },
    {
      name: "components-do-not-import-each-other",
      severity: "error",
      from: { path: `^src/(${COMPONENTS})/` },
      to: { path: `^src/(${COMPONENTS}|roles|cli)/`, pathNot: "^src/$1/" },
    },
    ...POSTS.map((room, index) => ({
      name: `posts-${room}-know-the-rooms-before`,
      severity: "error",
      from: { path: `^src/posts/${room}/` },
      to: { path: "^src/posts/", pathNot: `^src/posts/(config\\.ts$|(${POSTS.slice(0, index + 1).join("|")})/)` },
    })),
    {
      name: "components-are-entered-by-their-door",
      comment:
        "index.ts; config.ts stands beside it, since it is read before telemetry starts: an instrument made earlier measures nothing",
      severity: "error",
      from: { path: "^src/(roles|cli|sandbox|main\\.ts)" },
      to: { path: `^src/(${COMPONENTS})/`, pathNot: "^src/(operators/)?[^/]+/(index|config)\\.ts$" },
    },
    {
      name: "roles-know-no-command",
      severity: "error",
      from: { path: "^src/roles/" },
      to: { path: "^src/cli/" },
    },
    {
      name: "production-knows-no-sandbox",
      comment: "main.ts looks whether it is there: the image has none",
      severity: "error",
      from: { path: "^src/(?!sandbox/|main\\.ts$)" },
      to: { path: "^src/sandbox/" },
    },
    {
      name: "embedded-servers-and-the-world-know-no-role",
      severity: "error",
      from: { path: SANDBOX },
      to: { path: `^src/(${COMPONENTS}|state|roles|cli)/` },
    },
    {
      name: "only-adapters-touch-the-platform",
      comment:
        "adapters are *.redis.ts, *.nats.ts, *.grpc.ts, *.http.ts and *.sql.ts, composed in index.ts; everything else receives functions",
      severity: "error",
      from: { path: `^src/(${COMPONENTS}|state|upstreams)/`, pathNot: "(\\.(redis|nats|grpc|http|sql)|/index)\\.ts$" },
      to: { path: "^src/platform" },
    },
    {
      name: "vendors-stay-in-the-platform",
      severity: "error",
      from: {
        path: `^src/(kernel|contracts|delivery|state|upstreams|${COMPONENTS}|sandbox/world)/`,
        pathNot: "(\\.(redis|nats|grpc|http|sql)|/index)\\.ts$",
      },
      to: { path: "node_modules/(nats|ioredis|@grpc|express|pino|pg|@electric-sql)/" },
    },
    {
      name: "telemetry-is-observed-in-one-place",
      severity: "error",
      from: { path: `^src/(${COMPONENTS}|state|kernel|contracts)/`, pathNot: "/observe\\.ts$" },
      to: { path: "node_modules/@opentelemetry/|^src/telemetry/meters" },
    },
    {
      name: "caches-have-a-bound-in-bytes",
      comment: "contracts/caches.ts; page-cache.ts has a setting, faults.ts counts the latest outcomes",
      severity: "error",
      from: {
        path: "^src/",
        pathNot: "^src/(contracts/caches|state/entries/page-cache|upstreams/faults)\\.ts$",
      },
      to: { path: "node_modules/lru-cache/" },
    },
    {
      name: "nothing-unresolved",
      comment: "the page of `up` gets chart.js and the client from its server, which takes them from other folders",
      severity: "error",
      from: {},
      to: { couldNotResolve: true, pathNot: "^\\./(chart/chart|client/index)\\.js$" },
    },
  ],
  options: {
    tsPreCompilationDeps: true,
    doNotFollow: { path: "node_modules" },
    exclude: { path: "^dist" },
    tsConfig: { fileName: "tsconfig.json" },
    enhancedResolveOptions: {
      extensions: [".ts", ".js"],
      exportsFields: ["exports"],
      conditionNames: ["import", "node"],
    },
  },
};
