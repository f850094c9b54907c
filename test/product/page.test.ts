import { execFileSync } from "node:child_process";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "@jest/globals";
import type { Browser, Locator, Page } from "playwright-core";
import { hasBrowser, launchBrowser } from "../support/browser.js";
import { eventually } from "../support/eventually.js";
import { TcpProxy } from "../support/proxy.js";
import { program, runMain, type ServiceProcess } from "../support/service.js";

(hasBrowser ? describe : describe.skip)("the page of `up`", () => {
  let up: ServiceProcess;
  let browser: Browser;
  let url: string;
  let proxy: TcpProxy | undefined;

  beforeAll(async () => {
    up = runMain(["up", "--http-port", "0", "--grpc-port", "0", "--followers", "300"], {});
    await eventually(() => /Ctrl-C ends it/.test(up.logs()) || up.logs(), "up says that it is up", 120_000);
    url = /Page\s+(\S+)/.exec(up.logs())?.[1] as string;
    browser = await launchBrowser();
  }, 150_000);

  afterEach(async () => {
    await proxy?.close();
    proxy = undefined;
  });

  afterAll(async () => {
    await browser?.close();
    expect(await up?.stop()).toEqual({ code: 0, signal: null });
  }, 60_000);

  const open = async (viewer: string): Promise<Page> => {
    const page = await browser.newPage();
    await page.goto(`${url}#${viewer}`);
    await page.getByText(`live as ${viewer}`).waitFor();
    return page;
  };

  const newest = (page: Page): Promise<string | null> => page.locator("#timeline > li").first().textContent();

  const postAs = async (page: Page, author: string, text = ""): Promise<void> => {
    await page.locator("#post-form [name=author]").fill(author);
    await page.locator("#post-form [name=body]").fill(text);
    await page.getByRole("button", { name: "Post a drop" }).click();
  };

  test("a drop posted in one tab appears in another, also after the worker was killed", async () => {
    const [reader, writer] = [await open("ada"), await open("nova")];
    await reader.locator("#follow-form [name=following]").fill("nova");
    await reader.getByRole("button", { name: "Follow", exact: true }).click();
    const before = await newest(reader);
    await postAs(writer, "nova");
    await eventually(async () => {
      const shown = await newest(reader);
      return shown !== before && shown?.includes("nova") === true;
    }, "the drop in the other tab, with its author");

    const seen = await newest(reader);
    const worker = Number(/Worker\s+pid (\d+)/.exec(up.logs())?.[1]);
    process.kill(worker, "SIGKILL");
    await postAs(writer, "nova");
    await eventually(async () => (await newest(reader)) !== seen, "the drop that a new worker wrote", 40_000);
    expect(up.logs()).toMatch(/The worker has ended; another one is started with pid (?!${worker}\b)\d+\./);
  }, 90_000);

  test("tabs of one browser that show different users each have their own stream, also after it was cut", async () => {
    proxy = await TcpProxy.open(Number(new URL(url).port));
    const address = proxy.url("http");
    const context = await browser.newContext();
    const tab = async (viewer: string): Promise<Page> => {
      const page = await context.newPage();
      await page.goto(`${address}/#${viewer}`);
      await page.getByText(`live as ${viewer}`).waitFor();
      return page;
    };
    const [grace, alan] = [await tab("grace"), await tab("alan")];
    await grace.getByRole("button", { name: "Analyse" }).click();
    await grace.getByText(/^full of grace: \d+ posts/).waitFor();
    expect(await alan.locator("#analysis-status").textContent()).toBe("");

    proxy.refuse(true);
    for (const page of [grace, alan]) await page.getByText("connection lost").waitFor();
    proxy.refuse(false);
    await grace.getByText("live as grace").waitFor();
    await alan.getByText("live as alan").waitFor();
    await alan.locator("#post-form select").selectOption("direct");
    await postAs(alan, "alan");
    await alan.locator("#log").getByText("new_drop").waitFor();
    // Grace's stream has no news of it: that of what happens next comes first.
    await postAs(grace, "grace");
    await grace.locator("#log").getByText("new_drop").waitFor();
    expect(await grace.locator("#log").getByText("new_drop").count()).toBe(1);
    await context.close();
  }, 60_000);

  test("a sixth tab of a browser says why it is empty, and fills once another one is closed", async () => {
    const context = await browser.newContext();
    const tabs: Page[] = [];
    for (const viewer of ["ada", "alan", "grace", "donald", "edsger", "nova"]) {
      const tab = await context.newPage();
      await tab.goto(`${url}#${viewer}`);
      await tab.getByText(`live as ${viewer}`).waitFor();
      tabs.push(tab);
    }
    const sixth = tabs.at(-1) as Page;
    await sixth.getByText("A browser has six connections to a server").waitFor();
    expect(await sixth.locator("#timeline > li").count()).toBe(0);
    await tabs[0]?.close();
    await sixth.locator("#timeline > li").first().waitFor();
    expect(await sixth.locator("#message").textContent()).toBe("");
    await context.close();
  }, 60_000);

  test("a like and a request to follow are told on the tab of notifications, and read once it is shown", async () => {
    const [author, reader] = [await open("nova"), await open("ada")];
    const text = `told ${Date.now()}`;
    await postAs(author, "nova", text);
    const row = reader.locator("#timeline > li", { hasText: text });
    await reader.locator("#follow-form [name=following]").fill("nova");
    await reader.getByRole("button", { name: "Follow", exact: true }).click();
    await row.getByRole("button", { name: /^Like/ }).click();
    const tab = author.getByRole("radio", { name: /^Notifications/ });
    await author.getByText(/^Notifications \(\d+\)$/).waitFor();
    await tab.check();
    await author.locator("#notifications li", { hasText: `ada likes your drop: ${text}` }).waitFor();
    await author.getByText("Notifications of nova").waitFor();
    await author.getByText(/^Notifications$/).waitFor();
    expect(await author.locator("#timeline").isVisible()).toBe(false);
    await row.getByRole("button", { name: /^Like/ }).waitFor({ state: "hidden" });
    if (process.env["SCREENSHOT"])
      await author.screenshot({ path: `${process.env["SCREENSHOT"]}.notifications.png`, fullPage: true });
    await author.getByRole("radio", { name: "Home" }).check();
    await author.locator("#timeline > li", { hasText: text }).waitFor();
    expect(await author.locator("#notifications").isVisible()).toBe(false);
    for (const page of [author, reader]) await page.close();
  }, 60_000);

  test("a list is made, given a member and read live; other tabs of timelines are live, too", async () => {
    const page = await open("linus");
    const view = (name: string) => page.getByRole("radio", { name }).check();
    const member = "radia";
    await view("List");
    await page.getByText("No list yet.").waitFor();
    await page.locator("#list-form [name=title]").fill("Strangers");
    await page.getByRole("button", { name: "Make a list" }).click();
    await page.getByText("Members: none").waitFor();
    await page.locator("#log").getByText("open (list)").waitFor();
    await page.locator("#member-form [name=member]").fill(member);
    await page.getByRole("button", { name: "Add", exact: true }).click();
    await page.getByText(`Members: ${member}`).waitFor();
    const text = `for a list ${Date.now()}`;
    await postAs(page, member, text);
    const row = page.locator("#timeline > li", { hasText: text });
    await row.waitFor();
    await page.locator("#log").getByText("new_drop (list)").first().waitFor();
    if (process.env["SCREENSHOT"])
      await page.screenshot({ path: `${process.env["SCREENSHOT"]}.list.png`, fullPage: true });
    await page.locator("#member-form [name=member]").fill(member);
    await page.getByRole("button", { name: "Remove", exact: true }).click();
    await page.getByText("Members: none").waitFor();
    await row.waitFor({ state: "hidden" });

    await view("Local");
    await page.locator("#log").getByText("open (local)").waitFor();
    await row.waitFor();
    await postAs(page, member, `${text}, again`);
    await page.locator("#log").getByText("new_drop (local)").first().waitFor();
    await page.locator("#timeline > li", { hasText: `${text}, again` }).waitFor();
    await page.locator("#member-form [name=member]").waitFor({ state: "hidden" });
    await page.close();
  }, 60_000);

  test("the list tab of the next viewer never asks for a list of the former one", async () => {
    const page = await open("linus");
    await page.getByRole("radio", { name: "List" }).check();
    await page.locator("#list-form [name=title]").fill("Mine alone");
    await page.getByRole("button", { name: "Make a list" }).click();
    await page.locator("#log").getByText("open (list)").waitFor();
    const asked: string[] = [];
    // The home of the next viewer is open before the lists of that viewer are known.
    await page.route("**/world/lists?*", async (route) => {
      page.on("request", (request) => asked.push(new URL(request.url()).pathname));
      await page.getByText("live as grace").waitFor();
      await route.continue();
    });
    await page.locator("#viewer").fill("grace");
    await page.getByRole("button", { name: "Show", exact: true }).click();
    await page.getByText("No list yet.").waitFor();
    expect(asked.filter((path) => path.includes("/list/"))).toEqual([]);
    await page.close();
  }, 60_000);

  test("who deletes a drop by keyboard goes on at the next one", async () => {
    const page = await open("grace");
    const nextId = await page.locator("#timeline > li").nth(1).getAttribute("data-id");
    await page
      .getByRole("button", { name: /^Delete drop/ })
      .first()
      .press("Enter");
    await eventually(async () => {
      const focused = await page.evaluate("document.activeElement.closest('li')?.dataset.id");
      return focused === nextId;
    }, "the focus is on the next drop");
  }, 30_000);

  const rowsWith = (page: Page, ...texts: string[]): Locator =>
    texts.reduce((rows, hasText) => rows.filter({ hasText }), page.locator("#timeline > li"));

  const becomes = (rows: Locator, count: number): Promise<void> =>
    eventually(async () => (await rows.count()) === count || `${await rows.count()} rows`, `${count} rows`);

  test("a repost shows its original and who reposted it; mutes and blocks take drops away, and an unmute returns them", async () => {
    // Everybody follows nova.
    const [donald, edsger] = [await open("donald"), await open("edsger")];
    await edsger.locator("#follow-form [name=following]").fill("donald");
    await edsger.getByRole("button", { name: "Follow", exact: true }).click();
    await postAs(donald, "nova", "Worth a repost");
    await rowsWith(donald, "Worth a repost").getByRole("button", { name: "Repost" }).click();
    const repost = rowsWith(edsger, "donald reposted", "Worth a repost");
    await repost.waitFor();
    expect(await repost.locator(".author").textContent()).toBe("nova");
    expect(await repost.getByRole("button").allTextContents()).toEqual([
      ...["Reply", "Thread", "Like", "Repost", "Mute", "Block", "Edit", "Delete"],
    ]);
    await becomes(rowsWith(edsger, "Worth a repost"), 2);
    const own = rowsWith(donald, "donald reposted", "Worth a repost");
    await own.getByRole("button", { name: "Undo repost" }).waitFor();

    await repost.getByRole("button", { name: "Mute nova" }).click();
    await becomes(rowsWith(edsger, "nova"), 0);
    await edsger.getByRole("button", { name: "Unmute nova" }).click();
    // The page is read again: it has the repost in place of both.
    await becomes(rowsWith(edsger, "Worth a repost"), 1);
    expect(await edsger.locator("#hidden").isVisible()).toBe(false);
    expect(await edsger.evaluate("document.activeElement.id")).toBe("timeline");

    await postAs(donald, "donald", "By donald");
    await rowsWith(edsger, "By donald").getByRole("button", { name: "Block donald" }).click();
    await becomes(rowsWith(edsger, "donald"), 0);
    await becomes(rowsWith(edsger, "Worth a repost"), 1);
    await edsger.getByRole("button", { name: "Unblock donald" }).click();
    await edsger.locator("#hidden").waitFor({ state: "hidden" });

    await own.getByRole("button", { name: "Undo repost" }).click();
    await becomes(rowsWith(donald, "Worth a repost"), 1);
    await rowsWith(donald, "Worth a repost").getByRole("button", { name: "Repost of drop" }).waitFor();
  }, 90_000);

  test("a reply says whom it answers and has a thread; likes, links to files and edits show where the drop is", async () => {
    // Grace follows nova, as everybody does.
    const [nova, grace] = [await open("nova"), await open("grace")];
    await nova.locator("#post-form [name=attachment]").fill("https://files.example/cat.png");
    await postAs(nova, "nova", "What is new?");
    const asked = rowsWith(grace, "What is new?");
    await asked.waitFor();
    await asked.getByRole("link", { name: "https://files.example/cat.png" }).waitFor();
    await asked.getByRole("button", { name: "Like", exact: false }).first().click();
    await asked.getByText("1 like").waitFor();
    await asked.getByRole("button", { name: "Unlike drop" }).waitFor();

    await asked.getByRole("button", { name: "Reply drop" }).click();
    await grace.getByText("Answers nova: What is new?").waitFor();
    await postAs(grace, "nova", "This is");
    const reply = rowsWith(grace, "answers nova", "This is");
    await reply.waitFor();
    await reply.getByRole("button", { name: "Thread drop" }).click();
    await eventually(async () => {
      const lines = await reply.locator(".thread li").allTextContents();
      return JSON.stringify(lines) === JSON.stringify(["nova: What is new?", "nova: This is"]) || lines.join();
    }, "the thread");
    await reply.getByRole("button", { name: "Thread drop" }).click();
    await becomes(reply.locator(".thread li"), 0);

    nova.once("dialog", (dialog) => void dialog.accept("What is newer?"));
    await rowsWith(nova, "What is new?").getByRole("button", { name: "Edit drop" }).click();
    await rowsWith(grace, "What is newer?", "edited").waitFor();
    await grace.locator("#log").getByText("drop_edited").waitFor();
  }, 60_000);

  test("a request to follow is accepted on the page of whoever approves followers", async () => {
    const [asking, lena] = [await open("barbara"), await open("lena")];
    await lena
      .getByRole("button", { name: /^Reject / })
      .nth(2)
      .waitFor();
    await asking.locator("#follow-form [name=following]").fill("lena");
    await asking.getByRole("button", { name: "Follow", exact: true }).click();
    await asking.getByText("barbara asks to follow lena.").waitFor();
    await lena.reload();
    await lena.getByRole("button", { name: "Accept barbara" }).click();
    await lena.getByRole("button", { name: "Accept barbara" }).waitFor({ state: "detached" });
    await lena
      .getByRole("button", { name: /^Reject / })
      .first()
      .click();
    await eventually(
      async () => (await lena.getByRole("button", { name: /^Reject / }).count()) === 2,
      "one is rejected",
    );
  }, 60_000);

  test("drops of a suspended account are on no page, its own says so, and they are back once an operator lifts it", async () => {
    const [ada, mallory] = [await open("ada"), await browser.newPage()];
    await mallory.goto(`${url}#mallory`);
    await mallory.getByText("Suspended: nobody sees its drops").waitFor();
    const shown = rowsWith(ada, "Cheap watches");
    expect(await shown.count()).toBe(0);
    await postAs(ada, "mallory", "More watches");
    await ada.getByText("user_id: is suspended").waitFor();
    if (process.env["SCREENSHOT"]) await ada.screenshot({ path: process.env["SCREENSHOT"], fullPage: true });
    await ada.getByRole("button", { name: "Lift mallory" }).click();
    await shown.waitFor();
    await mallory.reload();
    await mallory.getByText("live as mallory").waitFor();
    await ada.locator("#standing-form [name=user]").fill("mallory");
    await ada.getByRole("button", { name: "Suspend" }).click();
    await ada.getByText("mallory is suspended").waitFor();
    await becomes(shown, 0);
  }, 60_000);

  test("on a narrow screen nothing is cut off, and names are not broken into letters", async () => {
    const page = await open("grace");
    await page.setViewportSize({ width: 320, height: 700 });
    await page.locator("#timeline > li").first().waitFor();
    const widths = await page.evaluate(
      "[document.documentElement.scrollWidth, document.querySelector('.author').clientHeight / document.querySelector('time').clientHeight]",
    );
    const [width, lines] = widths as [number, number];
    expect(width).toBe(320);
    expect(lines).toBeLessThan(2);
  });

  test("an analysis that was asked for arrives with a chart of each measure, and its reward", async () => {
    const page = await open("ada");
    await page.getByText("0 XP").waitFor();
    await page.locator("#analysis-form [name=did]").fill("nova");
    await page.getByRole("button", { name: "Analyse" }).click();
    await page.getByText(/^full of nova: \d+ posts/).waitFor();
    for (const title of ["Posts by hour of the day", "Reach", "Reactions", "Posts a day"])
      await page.getByRole("img", { name: new RegExp(`^${title}.*: `) }).waitFor();
    const drawn = await page.locator("#charts figure").first().locator("svg > text").allTextContents();
    expect(drawn).toEqual(["0", expect.stringMatching(/^[1-9]/), "0:00", "6:00", "12:00", "18:00"]);
    await page.getByText("20 XP").waitFor();
    await page.locator("#analysis-form [name=did]").fill("did:key:x");
    await page.getByRole("button", { name: "Analyse" }).click();
    await page.getByText(/^did: must be a DID/).waitFor();
  }, 60_000);

  test("what the service refuses becomes dead letters, which the page lists and redrives; commands see them too", async () => {
    // Ada follows alan.
    const page = await open("ada");
    await page.locator("#refuse-form [name=author]").fill("alan");
    await page.getByRole("button", { name: "Refuse to list them" }).click();
    await page.getByText("Broken: users GetFollowersList alan").waitFor();
    await postAs(page, "alan", "Refused at first");
    await page.getByText(/^1 × GetFollowersList: INTERNAL.*\(exhausted drop_created\)$/).waitFor();
    const shell = /Shell\s+\. (\S+)/.exec(up.logs())?.[1];
    const dlq = (command: string): string => {
      const script = `. ${shell}; "${[process.execPath, ...program()].join('" "')}" dlq ${command}`;
      return execFileSync("sh", ["-c", script], { encoding: "utf8", stdio: "pipe" });
    };
    expect(dlq("ls")).toMatch(/^1 x GetFollowersList: INTERNAL/);
    await page.getByRole("button", { name: "Heal it" }).click();
    await page.getByText("No service is broken.").waitFor();
    await page.getByRole("button", { name: "Redrive all" }).click();
    await page.getByText("1 redriven, 0 refused, 0 failed.").waitFor();
    await rowsWith(page, "Refused at first").waitFor();
    await page.getByText("None.").waitFor();
    expect(dlq("ls")).toBe("no dead letters\n");
  }, 90_000);

  test("the page shows local and global beside the home, and says why a drop is not on it", async () => {
    const page = await open("barbara");
    await page.getByText("Home timeline of barbara").waitFor();
    await postAs(page, "barbara", "Seen by all");
    await page.getByText("Posted a drop as barbara.").waitFor();
    await rowsWith(page, "Seen by all").waitFor();
    const view = (name: string) => page.getByRole("radio", { name }).check();
    await view("Local");
    await page.getByText("Local timeline, as barbara sees it").waitFor();
    await rowsWith(page, "Seen by all").waitFor();
    await view("Global");
    await rowsWith(page, "Seen by all").waitFor();
    await view("Home");
    await page.getByText("Home timeline of barbara").waitFor();
    const stranger = (await page.evaluate(
      "fetch('/world/users?limit=400').then((r) => r.json()).then(({ users }) => users.at(-1).user_id)",
    )) as string;
    await page.locator("#follow-form [name=following]").fill(stranger);
    await page.getByRole("button", { name: "Unfollow" }).click();
    await postAs(page, stranger, "Seen by others");
    await page.getByText(`barbara does not follow ${stranger}: it does not come to this home.`).waitFor();
    await page.getByRole("button", { name: "Break the users service" }).click();
    await page.getByText("Broken: users").waitFor();
    await postAs(page, "barbara", "Waits");
    await page.getByText("Posted a drop as barbara. It waits until what is broken is healed.").waitFor();
    await page.getByRole("button", { name: "Heal it" }).click();
    await rowsWith(page, "Waits").waitFor();
  }, 90_000);
});
