import { status } from "@grpc/grpc-js";
import { expect, test } from "@jest/globals";
import { RemoteKind } from "../../src/gen/avion/posts.js";
import { createProfileOf } from "../../src/posts/relations.grpc.js";
import { connectUsers } from "../../src/upstreams/upstreams.grpc.js";
import { describePostsWithUsers } from "../support/describe-posts-with-users.js";
import { POSTS_CONFIG, post, refusal, startPosts } from "../support/posts.js";

const { ACTOR, SERVER, DROP } = RemoteKind;
const publicUrl = "https://here.example";

describePostsWithUsers("addresses of users", (running) => {
  const withUrl = async (work: (posts: Awaited<ReturnType<typeof startPosts>>) => Promise<void>) => {
    const users = connectUsers(running.upstreams.usersAddress, {});
    const config = { ...POSTS_CONFIG, publicUrl };
    const posts = await startPosts(running.posts.db, { ...running.asked, config, profileOf: createProfileOf(users) });
    await work(posts);
    await posts.stop();
    users.close();
  };

  test("an address on the host of this server is that of a local user, who has a profile or drops", () =>
    withUrl(async (posts) => {
      running.world.addProfile("Ada");
      await post(posts, { user_id: "bob" });
      const found = async (webfinger: string) => {
        const { actor, ...local } = await posts.call.resolveWebfinger({ webfinger });
        expect(actor).toBeUndefined();
        return local;
      };
      const type = "application/activity+json";
      for (const address of ["Ada@here.example", "@Ada@HERE.example.", "acct:Ada@here.example"])
        expect(await found(address)).toEqual({ user_id: "Ada", type, href: `${publicUrl}/users/Ada` });
      for (const address of ["bob@here.example", "acct:BOB@Here.Example"])
        expect(await found(address)).toEqual({ user_id: "bob", type, href: `${publicUrl}/users/bob` });
      for (const address of ["cid@here.example", "ada@here.example", "bob@here.example:8443"])
        expect(await refusal(found(address))).toBe("NOT_FOUND webfinger: there is no such actor");
    }));

  test("while profiles cannot be read, it is not known who has none", () =>
    withUrl(async (posts) => {
      const restore = running.upstreams.inject({ method: "GetProfile", code: status.UNAVAILABLE });
      expect(await refusal(posts.call.resolveWebfinger({ webfinger: "zoe@here.example" }))).toMatch(/^UNAVAILABLE/);
      restore();
    }));

  test("objects of this server are no remote ones", () =>
    withUrl(async (posts) => {
      const [uri, document] = [`${publicUrl}/users/eve`, "{}"];
      expect(await refusal(posts.call.putRemoteObject({ uri, kind: ACTOR, document }))).toBe(
        "INVALID_ARGUMENT uri: is of this server: CreateDrop, EditDrop and SetProfile are for these",
      );
      const drop = { uri: "https://far.example/1", kind: DROP, actor_uri: uri, document };
      expect(await refusal(posts.call.putRemoteObject(drop))).toBe(
        "INVALID_ARGUMENT actor_uri: is of this server: CreateDrop, EditDrop and SetProfile are for these",
      );
    }));

  test("an actor keeps type and href of its address, a server its template", async () => {
    const { call } = running.posts;
    const link = { webfinger_type: "application/activity+json", webfinger_href: "https://far.example/users/eve" };
    const actor = { uri: "https://far.example/users/eve", kind: ACTOR, document: "{}", webfinger: "eve@far.example" };
    expect((await call.putRemoteObject({ ...actor, ...link })).object).toMatchObject(link);
    expect(await call.resolveWebfinger({ webfinger: "@Eve@FAR.example" })).toMatchObject({
      actor: { uri: actor.uri, ...link },
      user_id: "",
      type: link.webfinger_type,
      href: link.webfinger_href,
    });
    const lrdd_template = "https://far.example/.well-known/webfinger?resource={uri}";
    const server = { uri: "https://far.example/", kind: SERVER, document: "{}", lrdd_template };
    await call.putRemoteObject(server);
    expect((await call.getRemoteObject({ uri: server.uri })).object?.lrdd_template).toBe(lrdd_template);
    for (const [put, fault] of [
      [{ ...actor, lrdd_template }, "lrdd_template: is of a server"],
      [{ ...server, webfinger_type: "x" }, "webfinger_type: is of an actor"],
      [{ ...server, webfinger_href: "x" }, "webfinger_href: is of an actor"],
      [{ ...server, actor_uri: actor.uri }, "actor_uri: is of a drop"],
      [{ ...server, lrdd_template: "https://far.example/" }, "lrdd_template: has no {uri}"],
      [{ ...server, lrdd_template: "{uri}" }, "lrdd_template: is not an http or https URI"],
      [{ ...actor, webfinger_href: "x" }, "webfinger_href: is not an http or https URI"],
      [{ ...actor, webfinger_type: "x".repeat(201) }, "webfinger_type: must have at most 200 characters"],
    ] as const)
      expect(await refusal(call.putRemoteObject(put))).toBe(`INVALID_ARGUMENT ${fault}`);
  });
});
