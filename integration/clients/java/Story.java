import com.alibaba.nacos.api.NacosFactory;
import com.alibaba.nacos.api.common.Constants;
import com.alibaba.nacos.api.exception.NacosException;
import com.alibaba.nacos.api.naming.NamingService;
import com.alibaba.nacos.api.naming.listener.NamingEvent;
import com.alibaba.nacos.api.naming.pojo.Instance;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.time.Duration;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeSet;
import java.util.stream.Collectors;

/** The life of a service as nacos-client tells it, one source for all its versions. */
public class Story {
    static final Duration SOON = Duration.ofSeconds(10);
    static final Duration RECOVERY = Duration.ofSeconds(60);
    // 1.x only stops to send beats when it shuts down: the server waits 30 s for the next one.
    // Later ones close their connection.
    static final Duration EXPIRY = Duration.ofSeconds(System.getenv("VERSION").startsWith("1.") ? 40 : 15);

    static final Instance A = instance("10.1.0.1", true);
    static final Instance B = instance("10.1.0.2", true);
    static final Instance C = instance("10.1.0.3", true);
    static final Instance D = instance("10.1.0.4", true);
    static final Instance P = instance("10.1.0.5", false);

    final String service = System.getenv("SERVICE");
    final String batch = service + "-batch";
    final String persistent = service + "-persistent";
    final NamingService first = client();
    final NamingService second = client();
    /** The list that the listener got last. */
    volatile List<Instance> heard = List.of();

    Story() throws NacosException {}

    public static void main(String[] args) {
        try {
            new Story().tell();
        } catch (Throwable e) {
            e.printStackTrace();
            System.exit(1);
        }
        System.exit(0); // the SDK's threads would go on
    }

    void tell() throws Exception {
        step("register", () -> first.registerInstance(service, A));
        step("list", () -> awaitListed(first, SOON, service, A));
        step("subscribe", () -> {
            first.subscribe(service, event -> heard = ((NamingEvent) event).getInstances());
            awaitHeard(SOON, A);
        });
        step("push", () -> {
            second.registerInstance(service, B);
            awaitHeard(SOON, A, B);
        });
        step("deregister", () -> {
            second.deregisterInstance(service, B);
            awaitHeard(SOON, A);
        });

        Method batchRegister = method("batchRegisterInstance", String.class, String.class, List.class);
        if (batchRegister == null) {
            say("skip batch this version registers one instance per call");
        } else {
            step("batch", () -> {
                call(batchRegister, batch, Constants.DEFAULT_GROUP, List.of(C, D));
                awaitListed(first, SOON, batch, C, D);
            });
        }
        step("persistent", () -> {
            first.registerInstance(persistent, P);
            awaitListed(first, SOON, persistent, P);
        });

        ask(System.getenv("MODE").equals("one") ? "restart" : "kill");

        step("recover", () -> {
            awaitListed(first, RECOVERY, service, A);
            awaitListed(first, RECOVERY, persistent, P);
            if (batchRegister != null) {
                awaitListed(first, RECOVERY, batch, C, D);
            }
            // The second client may still be looking for a server.
            await(RECOVERY, "registered B", () -> second.registerInstance(service, B));
            awaitHeard(RECOVERY, A, B);
        });

        NamingService fresh = client();
        step("close", () -> {
            first.deregisterInstance(service, A);
            first.deregisterInstance(persistent, P);
            second.shutDown(); // B goes without a deregistration
            awaitListed(fresh, EXPIRY, service);
            awaitListed(fresh, EXPIRY, persistent);
        });
        first.shutDown();
        fresh.shutDown();
        say("end");
    }

    static NamingService client() throws NacosException {
        Properties properties = new Properties();
        properties.setProperty("serverAddr", System.getenv("SERVERS"));
        return NacosFactory.createNamingService(properties);
    }

    static Instance instance(String ip, boolean ephemeral) {
        Instance i = new Instance();
        i.setIp(ip);
        i.setPort(8080);
        i.setEphemeral(ephemeral);
        i.setMetadata(Map.of("lang", "java"));
        return i;
    }

    void awaitHeard(Duration within, Instance... want) throws Exception {
        await(within, "heard " + text(List.of(want)), () -> equal(heard, want));
    }

    /** Asks a server each time: the SDK's own copy would show what was pushed. */
    static void awaitListed(NamingService client, Duration within, String service, Instance... want) throws Exception {
        await(within, service + " lists " + text(List.of(want)), () -> equal(client.getAllInstances(service, false), want));
    }

    static void equal(List<Instance> got, Instance... want) {
        if (!text(got).equals(text(List.of(want)))) {
            throw new IllegalStateException("got " + text(got));
        }
    }

    /** What the story compares of instances, in one order. */
    static String text(Collection<Instance> instances) {
        return instances.stream()
                .map(i -> i.getIp() + ":" + i.getPort() + " " + i.getMetadata() + (i.isEphemeral() ? "" : " persistent"))
                .collect(Collectors.toCollection(TreeSet::new)).toString();
    }

    /** Tries until nothing is thrown: by the SDK while a server is away, by a comparison while it is too early. */
    static void await(Duration within, String what, Body attempt) throws Exception {
        long deadline = System.nanoTime() + within.toNanos();
        while (true) {
            try {
                attempt.run();
                return;
            } catch (Exception e) {
                if (System.nanoTime() > deadline) {
                    throw new IllegalStateException("not within " + within.toSeconds() + " s: " + what, e);
                }
            }
            Thread.sleep(5);
        }
    }

    Method method(String name, Class<?>... parameters) {
        try {
            return NamingService.class.getMethod(name, parameters);
        } catch (NoSuchMethodException e) {
            return null;
        }
    }

    void call(Method method, Object... arguments) throws Exception {
        try {
            method.invoke(first, arguments);
        } catch (InvocationTargetException e) {
            throw (Exception) e.getCause();
        }
    }

    interface Body {
        void run() throws Exception;
    }

    static void step(String name, Body body) throws Exception {
        long start = System.nanoTime();
        body.run();
        say("step " + name + " " + Duration.ofNanos(System.nanoTime() - start).toMillis());
    }

    static void ask(String what) throws Exception {
        say("ask " + what);
        if (!"done".equals(new BufferedReader(new InputStreamReader(System.in)).readLine())) {
            throw new IllegalStateException("no answer to ask " + what);
        }
    }

    static void say(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
